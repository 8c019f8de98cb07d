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

// fakeCache remembers what it was told.
type fakeCache struct {
	observed time.Time
	pending  []pleg.PodUID
	touched  map[pleg.PodUID]time.Time
}

func (c *fakeCache) Observe(at time.Time, pending []pleg.PodUID) {
	c.observed, c.pending = at, slices.Sorted(slices.Values(pending))
}

func (c *fakeCache) Touch(uid pleg.PodUID, at time.Time) { c.touched[uid] = at }

func newDiffer(tb testing.TB, c differ.Cache, metrics instrument.Registry) *differ.Differ {
	tb.Helper()
	return newOf(tb, differ.Options{Cache: c, Retry: func() {}, Metrics: metrics})
}

// newOf returns a differ with what the options lack.
func newOf(tb testing.TB, o differ.Options) *differ.Differ {
	tb.Helper()
	o.RelistPeriod, o.MaxQuarantine = period, maxQuarantine
	if o.Doubt == nil {
		o.Doubt = func(bool) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := differ.New(o)
	if err != nil {
		tb.Fatalf("New: %v", err)
	}
	return d
}

// bed is a differ at work in a bubble; the test is its lister and inspector.
type bed struct {
	differ       *differ.Differ
	cache        *fakeCache
	metrics      *prometheus.Registry
	retries      atomic.Int64
	logged       strings.Builder // to be read while the differ waits
	doubts       []bool
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

func newBed(t *testing.T) *bed {
	t.Helper()
	return newDelivering(t, 0)
}

// newDelivering is newBed with Options.DeliverAfterFailures.
func newDelivering(t *testing.T, after int) *bed {
	t.Helper()
	c := &fakeCache{touched: make(map[pleg.PodUID]time.Time)}
	b := &bed{
		cache: c, metrics: prometheus.NewPedanticRegistry(),
		listings: make(chan stage.Listing), observations: make(chan stage.Observation), settled: make(chan stage.Settled),
		inspect: make(chan stage.Change), retry: make(chan stage.Change), known: make(chan stage.Change), ended: make(chan error, 1),
	}
	b.differ = newOf(t, differ.Options{
		Cache: c, Retry: func() { b.retries.Add(1) }, DeliverAfterFailures: after,
		Doubt:  func(doubted bool) { b.doubts = append(b.doubts, doubted) },
		Logger: slog.New(slog.NewTextHandler(&b.logged, nil)), Metrics: instrument.Registry{Registerer: b.metrics},
	})
	go func() { b.ended <- b.differ.Run(b.listings, b.observations, b.settled, b.inspect, b.retry, b.known) }()
	t.Cleanup(func() {
		if !b.closed {
			close(b.listings)
			close(b.observations)
			synctest.Wait() // the inspector's answers end last
			close(b.settled)
		}
	})
	return b
}

// list sends the next listing and waits until it was applied.
func (b *bed) list(pods ...*pleg.Pod) {
	b.lists++
	b.listings <- stage.Listing{At: at(b.lists), Pods: pods}
	synctest.Wait()
}

func (b *bed) settle(uid pleg.PodUID, err error) {
	b.settled <- stage.Settled{UID: uid, Err: err}
	synctest.Wait()
}

// request asks for a reinspection and waits until the differ knows.
func (b *bed) request(uid pleg.PodUID) {
	b.differ.RequestReinspect(uid)
	synctest.Wait()
}

// take returns the change that waits to be inspected, whose events must be the
// given words.
func (b *bed) take(t *testing.T, uid pleg.PodUID, words string) stage.Change {
	t.Helper()
	c, ok := b.poll()
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
func (b *bed) takeKnown(t *testing.T, uid pleg.PodUID, words string) stage.Change {
	t.Helper()
	c := b.take(t, uid, words)
	if c.Pod != nil {
		t.Errorf("change of the gone pod %s has Pod %+v, want nil", uid, c.Pod)
	}
	return c
}

// change is one that the differ offered, and on which channel.
type change struct {
	stage.Change
	known bool
}

// poll returns the change that waits, if there is one, those that need no
// inspection first. It takes the marks among them.
func (b *bed) poll() (change, bool) {
	for {
		synctest.Wait()
		select {
		case c := <-b.known:
			if c.UID != "" {
				return change{c, true}, true
			}
			b.marks = append(b.marks, c.Current)
			continue
		default:
		}
		select {
		case c := <-b.inspect:
			return change{c, false}, true
		default:
			return change{}, false
		}
	}
}

// requireQuiet fails if a change waits.
func (b *bed) requireQuiet(t *testing.T) {
	t.Helper()
	if c, ok := b.poll(); ok {
		t.Fatalf("unexpected change of pod %s (known: %v): %s", c.UID, c.known, plegtest.Words(c.Events...))
	}
}
