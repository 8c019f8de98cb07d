package differ_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInspect = errors.New("inspection went wrong")

const (
	period        = time.Second
	maxQuarantine = 10 * time.Second
)

// at returns the time of the nth listing, from 1.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// fakeCache records the calls.
type fakeCache struct {
	observed time.Time
	pending  []pleg.PodUID
	touched  map[pleg.PodUID]time.Time
}

func (c *fakeCache) Observe(at time.Time, pending []pleg.PodUID) {
	c.observed, c.pending = at, slices.Sorted(slices.Values(pending))
}

func (c *fakeCache) Touch(uid pleg.PodUID, at time.Time) { c.touched[uid] = at }

// fakeLister counts the calls.
type fakeLister struct {
	relists     atomic.Int64
	unannounced int
	// announced are the reports of listings without an unannounced change: whether
	// an event came.
	announced []bool
}

func (l *fakeLister) RelistSoon() { l.relists.Add(1) }

func (l *fakeLister) ChangesUnannounced(n int) { l.unannounced += n }

func (l *fakeLister) ChangesAnnounced(heard bool) { l.announced = append(l.announced, heard) }

func newDiffer(tb testing.TB, c differ.Cache, metrics instrument.Registry) *differ.Differ {
	tb.Helper()
	return newWith(tb, differ.Options{Cache: c, Lister: &fakeLister{}, Metrics: metrics})
}

// newWith returns a differ of these options and defaults for the others.
func newWith(tb testing.TB, o differ.Options) *differ.Differ {
	tb.Helper()
	o.RelistPeriod, o.MaxQuarantine = period, maxQuarantine
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := differ.New(o)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return d
}

// fixture is a differ that runs in a bubble; the test plays lister and inspector.
type fixture struct {
	differ       *differ.Differ
	cache        *fakeCache
	metrics      *prometheus.Registry
	lister       fakeLister
	logged       strings.Builder // to be read while the differ waits
	listings     chan stage.Listing
	observations chan stage.Observation
	settled      chan stage.Settled
	inspect      chan stage.Change
	retry        chan stage.Change
	known        chan stage.Change
	ended        chan error
	marks        []time.Time
	lists        int
	closed       bool
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newDelivering(t, 0)
}

// newDelivering is newFixture with Options.DeliverAfterFailures.
func newDelivering(t *testing.T, after int) *fixture {
	t.Helper()
	c := &fakeCache{touched: make(map[pleg.PodUID]time.Time)}
	f := &fixture{
		cache: c, metrics: prometheus.NewPedanticRegistry(),
		listings: make(chan stage.Listing), observations: make(chan stage.Observation), settled: make(chan stage.Settled),
		inspect: make(chan stage.Change), retry: make(chan stage.Change), known: make(chan stage.Change), ended: make(chan error, 1),
	}
	f.differ = newWith(t, differ.Options{
		Cache: c, Lister: &f.lister, DeliverAfterFailures: after,
		Logger: slog.New(slog.NewTextHandler(&f.logged, nil)), Metrics: instrument.Registry{Registerer: f.metrics},
	})
	go func() { f.ended <- f.differ.Run(f.listings, f.observations, f.settled, f.inspect, f.retry, f.known) }()
	t.Cleanup(func() {
		if !f.closed {
			close(f.listings)
			close(f.observations)
			synctest.Wait() // the inspector's answers end last
			close(f.settled)
		}
	})
	return f
}

// list sends the next listing and waits until it was applied.
func (f *fixture) list(pods ...*pleg.Pod) {
	f.lists++
	f.listings <- stage.Listing{At: at(f.lists), Pods: pods}
	synctest.Wait()
}

func (f *fixture) settle(uid pleg.PodUID, err error) {
	f.settled <- stage.Settled{UID: uid, Err: err}
	synctest.Wait()
}

// request asks for a reinspection and waits until the differ knows.
func (f *fixture) request(uid pleg.PodUID) {
	f.differ.RequestReinspect(uid)
	synctest.Wait()
}

// take returns the waiting change, whose events must be the given words.
func (f *fixture) take(t *testing.T, uid pleg.PodUID, words string) stage.Change {
	t.Helper()
	c, ok := f.poll()
	if !ok {
		t.Fatalf("no change, want pod %s with %q", uid, words)
	}
	if got := plegtest.Words(c.Events...); c.UID != uid || got != words {
		t.Errorf("change of pod %s with %q, want pod %s with %q", c.UID, got, uid, words)
	}
	if c.known != (c.Pod == nil || c.Status != nil) {
		t.Errorf("change of pod %s came on the channel of those that need no inspection: %v, has a pod: %v, a status: %v",
			uid, c.known, c.Pod != nil, c.Status != nil)
	}
	for _, ev := range c.Events {
		if ev.PodUID != uid || !ev.ObservedAt.Equal(c.At) {
			t.Errorf("event %+v of a change of pod %s at %v", ev, uid, c.At)
		}
	}
	return c.Change
}

// takeKnown is take for a change that needs no inspection.
func (f *fixture) takeKnown(t *testing.T, uid pleg.PodUID, words string) stage.Change {
	t.Helper()
	c := f.take(t, uid, words)
	if c.Pod != nil {
		t.Errorf("change of the gone pod %s has Pod %+v, want nil", uid, c.Pod)
	}
	return c
}

// change is one that the differ offered, and whether it needs no inspection.
type change struct {
	stage.Change
	known bool
}

// poll returns the waiting change, if there is one; those that need no inspection
// come first. It collects the marks among them.
func (f *fixture) poll() (change, bool) {
	for {
		synctest.Wait()
		select {
		case c := <-f.known:
			if c.UID != "" {
				return change{c, true}, true
			}
			f.marks = append(f.marks, c.Current)
			continue
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

// requireQuiet fails if a change waits.
func (f *fixture) requireQuiet(t *testing.T) {
	t.Helper()
	if c, ok := f.poll(); ok {
		t.Fatalf("unexpected change of pod %s (known: %v): %s", c.UID, c.known, plegtest.Words(c.Events...))
	}
}
