//go:build linux

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// relistPeriod makes the tests faster than the default would.
const relistPeriod = 200 * time.Millisecond

// instance is one pipeline under test, with the events that it delivered. It
// runs in this process or in a program.
type instance struct {
	name string
	// pipeline is nil for a program.
	pipeline *pipeline.Pipeline
	// criEvents, if not nil, has the exit codes that CRI events carried. The
	// instance need not know others.
	criEvents *arrivals
	// mayOvertake is how many containers may lack a start or an exit code because a list
	// overtook their CRI events; overtaken are those.
	mayOvertake int
	overtaken   map[string]bool

	// healthy returns the health that the instance reports, or an error if it does
	// not answer. state returns what it knows, in the words of stateText. Both are
	// nil unless the test needs them.
	healthy func(context.Context) (bool, error)
	state   func(context.Context) (map[string]string, error)
	// unannounced returns pleg_missed_events_total; nil if unknown.
	unannounced func() float64
	// metric returns the value of a metric; nil if unknown.
	metric func(name string) float64
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
	stream   promises.Stream
	problems []string
}

func newInstance(name string) *instance {
	return &instance{name: name, byPod: make(map[pleg.PodUID][]pleg.Event)}
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
	o.Runtime = client
	if o.RelistPeriod == 0 {
		o.RelistPeriod = relistPeriod
	}
	in := newInstance(o.name)
	in.pipeline, err = pipeline.New(o.Options)
	must(t, err)
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
}

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

// reportedEnd reports whether the instance delivered the end of a container or
// sandbox.
func (in *instance) reportedEnd(id string) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, events := range in.byPod {
		if slices.ContainsFunc(events, func(ev pleg.Event) bool {
			return ev.Type == pleg.ContainerDied && string(ev.ContainerID) == id
		}) {
			return true
		}
	}
	return false
}

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

// compare returns how the events of a pod differ from the entries of its
// history, or "". If incomplete, the events so far are correct.
func compare(events []pleg.Event, entries []lab.Entry) (diff string, incomplete bool) {
	got, want := make(map[string][]string), make(map[string][]string)
	for _, ev := range events {
		got[string(ev.ContainerID)] = append(got[string(ev.ContainerID)], describe(ev))
	}
	for _, e := range entries {
		if e.Step != lab.Created { // there is no event for it
			want[e.ContainerID] = append(want[e.ContainerID], describeEntry(e))
		}
	}
	incomplete = true
	var lines []string
	ids := maps.Clone(got)
	maps.Copy(ids, want)
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		g, w := got[id], want[id]
		if slices.Equal(g, w) {
			continue
		}
		lines = append(lines, fmt.Sprintf("\n  %.12s: got %q\n   %9s want %q", id, g, "", w))
		if len(g) >= len(w) || !slices.Equal(g, w[:len(g)]) {
			incomplete = false
		}
	}
	return strings.Join(lines, ""), incomplete
}

func describe(ev pleg.Event) string {
	s := fmt.Sprintf("%s %s/%s %s#%d", ev.Type, ev.PodNamespace, ev.PodName, ev.ContainerName, ev.Attempt)
	if ev.Sandbox {
		s += " sandbox"
	}
	if ev.ExitCode != nil {
		s += fmt.Sprintf(" exit %d %s", *ev.ExitCode, ev.Reason)
	}
	return s
}

// describeEntry describes the event that an entry must cause.
func describeEntry(e lab.Entry) string {
	ev := pleg.Event{
		Type: pleg.EventType("Container" + e.Step), PodNamespace: e.PodNamespace, PodName: e.PodName,
		ContainerName: e.ContainerName, Attempt: e.Attempt, Sandbox: e.Sandbox, Reason: e.Reason,
	}
	if e.Sandbox {
		ev.ContainerName = e.PodName // a sandbox has no other name
	} else if e.Step == lab.Died {
		ev.ExitCode = &e.ExitCode
	}
	return describe(ev)
}
