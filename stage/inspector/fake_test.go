package inspector_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errInspect = errors.New("inspection failed")

const timeout = 10 * time.Second

// at returns the time of the nth listing.
func at(n int) time.Time { return time.Unix(1_700_000_000+int64(n), 0) }

// fakeRuntime is the PodStatus method of a runtime.
type fakeRuntime func(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error)

func (f fakeRuntime) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	return f(ctx, pod, last)
}

func (fakeRuntime) ListPods(context.Context) ([]*pleg.Pod, error) {
	panic("the inspector must not list pods")
}

// fixture is an inspector that runs in a bubble. The test acts as differ and
// dispatcher.
type fixture struct {
	inspector *inspector.Inspector
	runtime   *plegtest.Runtime
	metrics   *prometheus.Registry
	logged    kit.Log
	release   chan struct{} // of testHanging
	answered  atomic.Int64  // inspections that ended by themselves
	last      atomic.Pointer[answer]
	cache     *podcache.Cache
	inspect   chan stage.Change
	retry     chan stage.Change
	gone      chan stage.Change
	stop      chan stage.Cancel
	outcomes  chan stage.Outcome
	settled   chan stage.Settled
	ended     chan error
	cancel    func()
	finish    func()
}

// answer is an inspection that ended by itself.
type answer struct {
	uid  pleg.PodUID
	took time.Duration
	at   time.Time
}

// newFixture starts an inspector whose outcomes need not be received. If rt is nil, its runtime
// is f.runtime.
func newFixture(t *testing.T, rt fakeRuntime, o inspector.Options) *fixture {
	t.Helper()
	return newFixtureWithBuffer(t, rt, o, 100)
}

func newFixtureWithBuffer(t *testing.T, rt fakeRuntime, o inspector.Options, size int) *fixture {
	t.Helper()
	f := &fixture{
		runtime: plegtest.New(), metrics: prometheus.NewPedanticRegistry(), cache: podcache.New(),
		inspect: make(chan stage.Change), retry: make(chan stage.Change), gone: make(chan stage.Change),
		stop:     make(chan stage.Cancel),
		outcomes: make(chan stage.Outcome, size), settled: make(chan stage.Settled, size),
		ended: make(chan error, 1),
	}
	if rt == nil {
		rt = f.runtime.PodStatus
	}
	guarded, err := border.New(rt, border.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("border: %v", err)
	}
	o.Runtime, o.Cache, o.InspectTimeout, o.Logger, o.Metrics = guarded, f.cache, timeout, f.logged.Logger(), instrument.Registry{Registerer: f.metrics}
	o.Ended = func(uid pleg.PodUID, took time.Duration, at time.Time) {
		f.answered.Add(1)
		f.last.Store(&answer{uid, took, at})
	}
	o.Inspectors, o.HungAfter = max(o.Inspectors, 1), cmp.Or(o.HungAfter, timeout)
	i, err := inspector.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f.inspector, f.cancel = i, cancel
	f.finish = sync.OnceFunc(func() { close(f.inspect) })
	t.Cleanup(func() { f.cancel(); f.finish() })
	go func() {
		f.ended <- i.Run(ctx, inspector.Inputs{Inspect: f.inspect, Retry: f.retry, Gone: f.gone, Cancel: f.stop}, f.outcomes, f.settled)
	}()
	return f
}

// change returns a change of the pod, with an event for each exited container.
func change(n int, pod *pleg.Pod) stage.Change {
	c := stage.Change{UID: pod.UID, Pod: pod, At: at(n)}
	for _, container := range pod.Containers {
		if container.State == pleg.StateExited {
			c.Events = append(c.Events, pleg.Event{Type: pleg.ContainerDied, PodUID: pod.UID, ContainerID: container.ID})
		}
	}
	return c
}

// do sends the change and waits for the end of its inspection. It returns the outcome too, if there
// is any.
func (f *fixture) do(c stage.Change) (stage.Settled, stage.Outcome, bool) {
	f.inspect <- c
	s := f.end()
	synctest.Wait()
	select {
	case o := <-f.outcomes:
		return s, o, true
	default:
		return s, stage.Outcome{}, false
	}
}

// end waits for the end of an inspection. It skips reports of hung inspections and empty ones.
func (f *fixture) end() stage.Settled {
	for s := range f.settled {
		if s.How != stage.Hangs && s.How != stage.NoEnding {
			return s
		}
	}
	return stage.Settled{}
}

// accepts reports whether the inspector receives the change now.
func (f *fixture) accepts(c stage.Change) bool {
	synctest.Wait()
	select {
	case f.inspect <- c:
		return true
	default:
		return false
	}
}

// acceptsRetry is accepts for a quarantined pod.
func (f *fixture) acceptsRetry(c stage.Change) bool {
	synctest.Wait()
	c.Retry = true
	select {
	case f.retry <- c:
		return true
	default:
		return false
	}
}

func (f *fixture) requireMetric(t *testing.T, name string, want float64) {
	t.Helper()
	kit.RequireMetric(t, f.metrics, want, name)
}
