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

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/truth"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// relistPeriod makes the tests faster than the default would.
const relistPeriod = 200 * time.Millisecond

// instance is one pipeline under test, with the events that it delivered. It
// runs in this process or in a program.
type instance struct {
	name string
	// pipeline and metric, which returns the value of a metric, are nil for a program.
	pipeline *pipeline.Pipeline
	metric   func(name string) float64
	// status and entries return what the instance reports of itself and of the pods. They
	// are nil for a program without a socket.
	status  func(context.Context) (pleg.Status, error)
	entries func(context.Context) ([]cache.Entry, error)

	// criEvents, if not nil, has the exit codes that CRI events carried. The
	// instance need not know others.
	criEvents *criEvents
	// mayOvertake is how many containers may lack a start or an exit code because a list
	// overtook their CRI events; overtaken are those.
	mayOvertake int
	overtaken   map[string]bool

	// The instance must be unhealthy once its last list is older than threshold;
	// period is the time between two lists. Both are zero if this is not checked.
	threshold, period time.Duration
	// pollingThreshold is the threshold while there is no event stream, and while polls
	// is set: when the fault began, events did not stand in for lists.
	pollingThreshold time.Duration
	polls            bool
	// paused is when the instance itself did not run.
	paused outage
	health healthLog

	mu       sync.Mutex // guards what follows
	byPod    map[pleg.PodUID][]pleg.Event
	arrived  map[string]time.Time // the first event of each step, by stepKey
	stream   promises.Stream
	problems []string
}

func newInstance(name string) *instance {
	return &instance{name: name, byPod: make(map[pleg.PodUID][]pleg.Event), arrived: make(map[string]time.Time)}
}

// runOptions say how to run a pipeline in this process.
type runOptions struct {
	pipeline.Options
	name string
	cri  cri.Options
	// checkCache compares the cache with each event as it arrives. Then every
	// step must be awaited before the next.
	checkCache bool
	// If incomplete, awaitAll does not wait for this instance.
	incomplete bool
}

// runPipeline runs a pipeline on the lab until the test ends.
func (f *fixture) runPipeline(o runOptions) *instance {
	t := f.t
	t.Helper()
	client, err := cri.New(f.lab.Endpoint(), o.cri)
	must(t, err)
	registry := prometheus.NewPedanticRegistry()
	o.Runtime, o.Registerer = client, registry
	o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil)).With("instance", o.name)
	if o.RelistPeriod == 0 {
		o.RelistPeriod = relistPeriod
	}
	in := newInstance(o.name)
	in.pipeline, err = pipeline.New(o.Options)
	must(t, err)
	in.metric = func(name string) float64 { return kit.Metric(t, registry, name) }
	in.status = func(context.Context) (pleg.Status, error) { return in.pipeline.Status(), nil }
	in.entries = func(context.Context) ([]cache.Entry, error) { return in.pipeline.Cache().List(), nil }
	sub, err := in.pipeline.Subscribe(pipeline.SubscribeOptions{Name: "e2e"})
	must(t, err)

	read := make(chan struct{})
	go func() {
		defer close(read)
		for ev := range sub.Events() {
			if o.checkCache {
				in.checkCache(ev)
			}
			in.add(ev)
		}
	}()
	stop := kit.Run(t, in.pipeline.Run)
	t.Cleanup(func() {
		_ = stop() // Run reports the error
		<-read
		must(t, client.Close())
		in.check(t, f.lab)
	})
	if !o.incomplete {
		f.instances = append(f.instances, in)
	}
	return in
}

// awaitHealth waits until the instance reports that it is healthy, or that it is not.
func (in *instance) awaitHealth(ctx context.Context, want bool) error {
	return await(ctx, func() error {
		status, err := in.status(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", in.name, err)
		}
		if status.Healthy != want {
			return errors.Join(fmt.Errorf("%s: healthy is %v", in.name, status.Healthy), status.Err)
		}
		return nil
	})
}

// diffLists returns how the states that the instance knows differ from the CRI lists.
func (in *instance) diffLists(ctx context.Context, l *lab.Lab) error {
	entries, knownErr := in.entries(ctx)
	listed, err := truth.Listed(ctx, l)
	if err := errors.Join(knownErr, err); err != nil {
		return err
	}
	known := make(map[pleg.ContainerID]pleg.State)
	for _, pod := range promises.CachedTruth(entries) {
		for id, c := range pod.Containers {
			known[id] = c.State
		}
	}
	if !maps.Equal(known, listed) {
		return fmt.Errorf("%s: knows %v, the runtime lists %v", in.name, known, listed)
	}
	return nil
}

// checkCache adds a problem if the cache does not show what the event says.
func (in *instance) checkCache(ev pleg.Event) {
	status, err := in.pipeline.Cache().Get(ev.PodUID)
	if err != nil {
		in.problem("%s: the cache has error %v", describe(ev), err)
		return
	}
	present, running := find(status, ev)
	gone := len(status.Containers)+len(status.Sandboxes) == 0 && status.ObservedAt.IsZero()
	if !gone && status.ObservedAt.Before(ev.ObservedAt) {
		in.problem("%s: the status in the cache is %v older", describe(ev), ev.ObservedAt.Sub(status.ObservedAt))
	}
	ok := true
	switch ev.Type {
	case pleg.ContainerStarted:
		ok = present && running
	case pleg.ContainerDied:
		ok = present && !running
	case pleg.ContainerRemoved:
		ok = !present
	}
	if !ok {
		in.problem("%s: in the cache present is %v, running is %v", describe(ev), present, running)
	}
}

func find(status *pleg.PodStatus, ev pleg.Event) (present, running bool) {
	if !ev.Sandbox {
		c := status.Container(ev.ContainerID)
		return c != nil, c != nil && c.State == pleg.StateRunning
	}
	for _, s := range status.Sandboxes {
		if s.ID == ev.ContainerID {
			return true, s.Ready
		}
	}
	return false, false
}

// add stores an event.
func (in *instance) add(ev pleg.Event) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stream.Add(ev)
	if ev.ObservedAt.IsZero() || ev.ObservedAt.After(time.Now()) {
		in.addProblem("%s: observed at %v", describe(ev), ev.ObservedAt)
	}
	in.byPod[ev.PodUID] = append(in.byPod[ev.PodUID], ev)
	key := stepKey(string(ev.ContainerID), lab.Step(strings.TrimPrefix(string(ev.Type), "Container")))
	if _, ok := in.arrived[key]; !ok {
		in.arrived[key] = time.Now()
	}
}

// stepKey is the key of a step of a container or sandbox.
func stepKey(id string, step lab.Step) string { return id + " " + string(step) }

func (in *instance) problem(format string, args ...any) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.addProblem(format, args...)
}

// addProblem needs the lock.
func (in *instance) addProblem(format string, args ...any) {
	in.problems = append(in.problems, in.name+": "+fmt.Sprintf(format, args...))
}

func (in *instance) events(uid pleg.PodUID) []pleg.Event {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Clone(in.byPod[uid])
}

// reported returns when the instance delivered a step; the zero time if it has not.
func (in *instance) reported(id string, step lab.Step) time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.arrived[stepKey(id, step)]
}

func (in *instance) reportedEnd(id string) bool { return !in.reported(id, lab.Died).IsZero() }

// check fails the test if there was a problem, if a promise was broken, or if an event is
// of a pod that is not in the history.
func (in *instance) check(t *testing.T, l *lab.Lab) {
	t.Helper()
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, p := range in.problems {
		t.Error(p)
	}
	if err := in.stream.Check(); err != nil {
		t.Errorf("%s: %v", in.name, err)
	}
	for uid, events := range in.byPod {
		if len(l.History().Pod(string(uid))) == 0 {
			t.Errorf("%s: events of unknown pod %s: %v", in.name, uid, events)
		}
	}
}
