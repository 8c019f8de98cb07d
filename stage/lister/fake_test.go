package lister_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	period    = time.Second
	threshold = 3 * time.Minute
	timeout   = 10 * time.Second

	retryPeriod = 200 * time.Millisecond

	periodWithEvents    = 5 * time.Minute
	thresholdWithEvents = 10 * time.Minute
)

var (
	errList = errors.New("the runtime is away")
	errStop = errors.New("the test stops the lister")
)

// fakeRuntime answers from its field, which is called once for each list.
type fakeRuntime func(ctx context.Context) ([]*pleg.Pod, error)

func (f fakeRuntime) ListPods(ctx context.Context) ([]*pleg.Pod, error) { return f(ctx) }

// listOnly has no statuses, which the lister does not ask for.
type listOnly struct{ fakeRuntime }

func (listOnly) PodStatus(context.Context, *pleg.Pod, *pleg.PodStatus) (*pleg.PodStatus, error) {
	panic("the lister inspects no pod")
}

// fixture is a lister at work in a bubble.
type fixture struct {
	lister   *lister.Lister
	listings chan stage.Listing
	ended    chan error
	start    time.Time
	stop     func()
}

func newFixture(t *testing.T, rt fakeRuntime, metrics instrument.Registry) *fixture {
	t.Helper()
	runtime, err := border.New(listOnly{rt}, border.Options{ListTimeout: timeout, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("border: %v", err)
	}
	l, err := lister.New(lister.Options{
		Runtime: runtime, RelistPeriod: period, RelistThreshold: threshold, RetryPeriod: retryPeriod,
		RelistPeriodWithEvents: periodWithEvents, RelistThresholdWithEvents: thresholdWithEvents,
		Logger: slog.New(slog.DiscardHandler), Metrics: metrics,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &fixture{
		lister: l, listings: make(chan stage.Listing), ended: make(chan error, 1), start: time.Now(),
		stop: func() { cancel(errStop) },
	}
	t.Cleanup(f.stop)
	go func() { f.ended <- l.Run(ctx, f.listings) }()
	return f
}

// next returns the next listing and how long after the start it was sent.
func (f *fixture) next(t *testing.T) (stage.Listing, time.Duration) {
	t.Helper()
	select {
	case l, ok := <-f.listings:
		if !ok {
			t.Fatal("the listings ended")
		}
		return l, time.Since(f.start)
	case <-time.After(time.Hour):
		t.Fatal("no listing within an hour")
	}
	return stage.Listing{}, 0
}

// requireEnded fails unless Run has returned the cause of its context and
// closed the listings without another one.
func (f *fixture) requireEnded(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-f.ended:
		if !errors.Is(err, errStop) {
			t.Errorf("Run = %v, want the cause of its context", err)
		}
	default:
		t.Fatal("Run has not returned")
	}
	if l, ok := <-f.listings; ok {
		t.Errorf("listing after the end: %+v", l)
	}
}
