package differ_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInspect = errors.New("inspection failed")

const (
	period        = time.Second
	maxQuarantine = 10 * time.Second
)

// at returns the time of the nth listing, counted from 1.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// fixture is a differ that runs in a bubble. The test acts as lister and
// inspector.
type fixture struct {
	differ       *differ.Differ
	cache        *fakeCache
	metrics      *prometheus.Registry
	lister       fakeLister
	logged       kit.Log
	listings     chan stage.Listing
	observations chan stage.Observation
	settled      chan stage.Settled
	inspect      chan stage.Change
	retry        chan stage.Change
	known        chan stage.Change
	cancel       chan stage.Cancel
	marked       chan stage.Mark
	marks        []stage.Mark
	lists        int
}

// testDiffer runs a test with a differ in a bubble.
func testDiffer(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t, 0)) })
}

// runDiffer runs a subtest with a differ in a bubble.
func runDiffer(t *testing.T, name string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	kit.Bubble(t, name, func(t *testing.T) { test(t, newFixture(t, 0)) })
}

// newFixture starts a differ; deliverAfter is Options.DeliverAfterFailures.
func newFixture(t *testing.T, deliverAfter int) *fixture {
	t.Helper()
	c := &fakeCache{touched: make(map[pleg.PodUID]time.Time)}
	f := &fixture{
		cache: c, metrics: prometheus.NewPedanticRegistry(),
		listings: make(chan stage.Listing), observations: make(chan stage.Observation), settled: make(chan stage.Settled),
		inspect: make(chan stage.Change), retry: make(chan stage.Change), known: make(chan stage.Change),
		cancel: make(chan stage.Cancel), marked: make(chan stage.Mark),
	}
	var err error
	f.differ, err = differ.New(differ.Options{
		Cache: c, Lister: &f.lister, Pods: &f.lister, DeliverAfterFailures: deliverAfter,
		RelistPeriod: period, MaxQuarantine: maxQuarantine,
		Logger: f.logged.Logger(), Metrics: instrument.Registry{Registerer: f.metrics},
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- f.differ.Run(f.listings, f.observations, f.settled,
			differ.Outputs{Inspect: f.inspect, Retry: f.retry, Known: f.known, Cancel: f.cancel, Marks: f.marked})
	}()
	t.Cleanup(func() {
		close(f.listings)
		close(f.observations)
		synctest.Wait() // the inspector's answers end last
		close(f.settled)
		if err := <-ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	return f
}

// list sends the next listing and waits until the differ has applied it.
func (f *fixture) list(pods ...*pleg.Pod) { f.sendListing(stage.Listing{Pods: pods}) }

func (f *fixture) sendListing(l stage.Listing) {
	f.lists++
	if l.At.IsZero() {
		l.At = at(f.lists)
	}
	if l.Answered.IsZero() {
		l.Answered = l.At
	}
	f.listings <- l
	synctest.Wait()
}

// sendHint sends a CRI event that was made n tenths of a second after the newest
// listing began.
func (f *fixture) sendHint(n int, h *pleg.Hint) {
	f.sendObservation(stage.Observation{UID: h.UID, At: at(f.lists).Add(time.Duration(n) * time.Second / 10), Hint: h})
}

// goneAt is a single-pod list that found the pod gone.
func goneAt(f *fixture, uid pleg.PodUID, n int) stage.Observation {
	return stage.Observation{UID: uid, At: at(f.lists).Add(time.Duration(n) * time.Second / 10)}
}

// sendObservation sends an observation; unless it says more, its answer came at once.
func (f *fixture) sendObservation(o stage.Observation) {
	if o.Answered.IsZero() {
		o.Answered = o.At
	}
	f.observations <- o
	synctest.Wait()
}

func (f *fixture) settle(uid pleg.PodUID, err error) {
	f.sendSettled(stage.Settled{UID: uid, Err: err})
}

func (f *fixture) sendSettled(s stage.Settled) {
	f.settled <- s
	synctest.Wait()
}

// settleAll settles each change that the differ offers, with the same error.
func (f *fixture) settleAll(err error) {
	for {
		c, ok := f.nextChange()
		if !ok {
			return
		}
		f.settle(c.UID, err)
	}
}

// listAndSettle sends a listing and has every inspection that follows succeed.
func (f *fixture) listAndSettle(pods ...*pleg.Pod) {
	f.list(pods...)
	f.settleAll(nil)
}

// requireChange returns the next change. It must be that of the pod, with the
// events that words list.
func (f *fixture) requireChange(t *testing.T, uid pleg.PodUID, words string) stage.Change {
	t.Helper()
	c, ok := f.nextChange()
	if !ok {
		t.Fatalf("no change, want pod %s with %q", uid, words)
	}
	if got := plegtest.Words(c.Events...); c.UID != uid || got != words {
		t.Errorf("change of pod %s with %q, want pod %s with %q", c.UID, got, uid, words)
	}
	if c.known != (c.Pod == nil || c.Status != nil) {
		t.Errorf("change of pod %s: came on channel known: %v, has a pod: %v, has a status: %v", uid, c.known, c.Pod != nil, c.Status != nil)
	}
	for _, ev := range c.Events {
		if ev.PodUID != uid || ev.ObservedAt.After(c.At) {
			t.Errorf("event %+v of a change of pod %s at %v", ev, uid, c.At)
		}
	}
	return c.Change
}

type change struct {
	stage.Change
	known bool // it came on the channel of changes that need no inspection
}

// nextChange returns the change that the differ offers, if any: first those that
// need no inspection. It collects the marks in f.marks.
func (f *fixture) nextChange() (change, bool) {
	for {
		synctest.Wait()
		select {
		case <-f.cancel:
			continue
		case m := <-f.marked:
			f.marks = append(f.marks, m)
			continue
		default:
		}
		select {
		case c := <-f.known:
			return change{c, true}, true
		default:
		}
		select {
		case c := <-f.inspect:
			return change{c, false}, true
		default:
			return change{}, false
		}
	}
}

func (f *fixture) requireNoChange(t *testing.T) {
	t.Helper()
	if c, ok := f.nextChange(); ok {
		t.Fatalf("unexpected change of pod %s (known: %v): %s", c.UID, c.known, plegtest.Words(c.Events...))
	}
}

// hint returns a CRI event about a container, such as "c=exited" or "c=removed".
// words list the pod after the event, "-" stands for an event without the pod.
func hint(uid pleg.PodUID, event, words string) *pleg.Hint {
	h := &pleg.Hint{UID: uid}
	id, state, _ := strings.Cut(event, "=")
	h.Container = pleg.ContainerID(strings.TrimPrefix(id, "/"))
	if h.Removed = state == "removed"; h.Removed {
		state = "exited"
	}
	h.State = plegtest.Pod("", "x="+state).Containers[0].State
	if words != "-" {
		h.Pod = plegtest.Pod(uid, words)
	}
	return h
}

// withStatus adds the status of the whole pod to a CRI event.
func withStatus(h *pleg.Hint) *pleg.Hint {
	h.Status = plegtest.Status(h.Pod)
	return h
}

// hasRun is [withStatus] with containers that have run.
func hasRun(h *pleg.Hint) *pleg.Hint {
	for _, c := range withStatus(h).Status.Containers {
		c.StartedAt = at(0)
	}
	return h
}
