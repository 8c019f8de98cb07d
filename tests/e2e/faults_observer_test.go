//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// observer is a pipeline that watches a lab through a fault, in this process or
// in one of its own.
type observer struct {
	seen *record
	// healthy is its own verdict; an error means that there was none.
	healthy func(context.Context) (bool, error)
	// state returns what it knows, in the words of stateOf.
	state func(context.Context) (map[string]string, error)
	// threshold is the age of the last list at which it is to be unhealthy, and
	// period the time between two; zero if that is not looked at.
	threshold, period time.Duration
	// polling is the threshold while there is no stream of events.
	polling time.Duration
	// stopped is when this observer itself could not look.
	stopped blind
	// missed returns its count of what no event announced; nil if unknown.
	missed func() float64

	verdicts verdicts
}

// verdicts are the turns that an observer's health has taken.
type verdicts struct {
	mu   sync.Mutex
	turn []turn
}

type turn struct {
	at time.Time
	ok bool
}

func (v *verdicts) note(ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if n := len(v.turn); n == 0 || v.turn[n-1].ok != ok {
		v.turn = append(v.turn, turn{time.Now(), ok})
	}
}

// next returns how long after a time the verdict was first ok, or not; negative
// if never.
func (v *verdicts) next(after time.Time, ok bool) time.Duration {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, t := range v.turn {
		if t.ok == ok && t.at.After(after) {
			return t.at.Sub(after)
		}
	}
	return -1
}

// watchHealth notes an observer's verdicts until the test ends.
func watchHealth(ctx context.Context, t *testing.T, o *observer) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				if ok, err := o.healthy(ctx); err == nil {
					o.verdicts.note(ok)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// observe runs the library on the lab until the test ends.
func observe(ctx context.Context, t *testing.T, l *lab.Lab, name string, o pipeline.Options) *observer {
	t.Helper()
	registry := prometheus.NewRegistry()
	o.Registerer = registry
	o.Logger = logTo(t, name)
	p, seen := runLibrary(ctx, t, l, o, false)
	seen.observer = name
	ob := &observer{
		seen:      seen,
		healthy:   func(context.Context) (bool, error) { ok, _ := p.Healthy(); return ok, nil },
		state:     func(context.Context) (map[string]string, error) { return cacheState(p) },
		threshold: o.RelistThreshold, period: o.RelistPeriod, polling: o.RelistThreshold,
		missed: func() float64 { return counter(t, registry, "pleg_missed_events_total") },
	}
	if o.Events == pipeline.EventsAuto {
		ob.threshold, ob.period = o.RelistThresholdWithEvents, o.RelistPeriodWithEvents
	}
	watchHealth(ctx, t, ob)
	return ob
}

// logTo keeps the end of a log and prints it if the test fails.
func logTo(t *testing.T, name string) *slog.Logger {
	var mu sync.Mutex
	var lines []string
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, strings.Join(lines, ""))
		}
	})
	return slog.New(slog.NewTextHandler(writer(func(line []byte) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines[max(0, len(lines)-50):], string(line))
	}), nil))
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}

func counter(t *testing.T, registry *prometheus.Registry, name string) float64 {
	families, err := registry.Gather()
	if err != nil {
		t.Errorf("gather metrics: %v", err)
		return 0
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Errorf("no metric %s", name)
	return 0
}

// stateOf is the one word for what a container or sandbox is.
func stateOf(sandbox bool, state pleg.State, code int32, reason string) string {
	switch {
	case sandbox && state == pleg.StateRunning:
		return "ready"
	case sandbox:
		return "notready"
	case state == pleg.StateExited:
		return fmt.Sprintf("exited %d %s", code, reason)
	default:
		return state.String()
	}
}

func cacheState(p *pipeline.Pipeline) (map[string]string, error) {
	got := make(map[string]string)
	for _, e := range p.Cache().List() {
		if e.Err != nil {
			return nil, fmt.Errorf("pod %s: %w", e.UID, e.Err)
		}
		for _, c := range e.Status.Containers {
			got[string(c.ID)] = stateOf(false, c.State, c.ExitCode, c.Reason)
		}
		for _, s := range e.Status.Sandboxes {
			state := pleg.StateExited
			if s.Ready {
				state = pleg.StateRunning
			}
			got[string(s.ID)] = stateOf(true, state, 0, "")
		}
	}
	return got, nil
}

// ledgerState returns what has been done to the pods.
func ledgerState(l *lab.Lab) map[string]string {
	want := make(map[string]string)
	for _, e := range l.Ledger().All() {
		switch e.Step {
		case lab.Created:
			want[e.ContainerID] = stateOf(e.Sandbox, pleg.StateCreated, 0, "")
		case lab.Started:
			want[e.ContainerID] = stateOf(e.Sandbox, pleg.StateRunning, 0, "")
		case lab.Died:
			want[e.ContainerID] = stateOf(e.Sandbox, pleg.StateExited, e.ExitCode, e.Reason)
		case lab.Removed:
			delete(want, e.ContainerID)
		}
	}
	return want
}

// runtimeState returns what the runtime itself says of each container by its
// status, and of the sandboxes that the ledger knows, so that no list is needed
// that may be too large.
func runtimeState(ctx context.Context, l *lab.Lab) (map[string]string, error) {
	got := make(map[string]string)
	for _, e := range l.Ledger().All() {
		if _, ok := got[e.ContainerID]; ok || l.Ledger().Last(e.ContainerID) == lab.Removed {
			continue
		}
		if e.Sandbox {
			st, err := l.Runtime().PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: e.ContainerID})
			if err != nil {
				return nil, err
			}
			state := pleg.StateExited
			if st.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
				state = pleg.StateRunning
			}
			got[e.ContainerID] = stateOf(true, state, 0, "")
			continue
		}
		answer, err := l.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: e.ContainerID})
		if err != nil {
			return nil, err
		}
		st := answer.GetStatus()
		state := map[runtimeapi.ContainerState]pleg.State{
			runtimeapi.ContainerState_CONTAINER_CREATED: pleg.StateCreated,
			runtimeapi.ContainerState_CONTAINER_RUNNING: pleg.StateRunning,
			runtimeapi.ContainerState_CONTAINER_EXITED:  pleg.StateExited,
		}[st.GetState()]
		got[e.ContainerID] = stateOf(false, state, st.GetExitCode(), st.GetReason())
	}
	return got, nil
}

var errOther = errors.New("differs")

// sameState returns an error that names some of the differences.
func sameState(who string, got, want map[string]string) error {
	if maps.Equal(got, want) {
		return nil
	}
	var lines []string
	ids := maps.Clone(got)
	maps.Copy(ids, want)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		if got[id] != want[id] {
			lines = append(lines, fmt.Sprintf("%.12s is %q, want %q", id, got[id], want[id]))
		}
	}
	return fmt.Errorf("%s %w in %d places: %s", who, errOther, len(lines), strings.Join(lines[:min(len(lines), 5)], "; "))
}

// listedState returns what the runtime's own lists say.
func listedState(ctx context.Context, l *lab.Lab) (map[string]string, error) {
	containers, err := l.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	sandboxes, err := l.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	got := make(map[string]string)
	for _, c := range containers.GetContainers() {
		got[c.GetId()] = strings.ToLower(strings.TrimPrefix(c.GetState().String(), "CONTAINER_"))
	}
	for _, s := range sandboxes.GetItems() {
		got[s.GetId()] = strings.ToLower(strings.TrimPrefix(s.GetState().String(), "SANDBOX_"))
	}
	return got, nil
}

// matchesLists compares what an observer knows with the runtime's lists, which
// have no exit codes.
func (tr *trial) matchesLists(ctx context.Context, o *observer) error {
	want, err := listedState(ctx, tr.lab)
	if err != nil {
		return err
	}
	got, err := o.state(ctx)
	if err != nil {
		return err
	}
	for id, state := range got {
		got[id], _, _ = strings.Cut(state, " ")
	}
	return sameState("what "+o.seen.observer+" knows", got, want)
}
