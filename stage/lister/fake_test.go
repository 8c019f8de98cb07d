package lister_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

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

// bed is a lister at work in a bubble.
type bed struct {
	lister   *lister.Lister
	listings chan stage.Listing
	ended    chan error
	start    time.Time
	stop     func()
}

func newBed(t *testing.T, rt fakeRuntime, metrics instrument.Registry) *bed {
	t.Helper()
	l, err := lister.New(lister.Options{
		Runtime: rt, RelistPeriod: period, RelistThreshold: threshold, RetryPeriod: retryPeriod,
		RelistPeriodWithEvents: periodWithEvents, RelistThresholdWithEvents: thresholdWithEvents, ListTimeout: timeout,
		Logger: slog.New(slog.DiscardHandler), Metrics: metrics,
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	b := &bed{
		lister: l, listings: make(chan stage.Listing), ended: make(chan error, 1), start: time.Now(),
		stop: func() { cancel(errStop) },
	}
	t.Cleanup(b.stop)
	go func() { b.ended <- l.Run(ctx, b.listings) }()
	return b
}

// next returns the next listing and how long after the start it was sent.
func (b *bed) next(t *testing.T) (stage.Listing, time.Duration) {
	t.Helper()
	select {
	case l, ok := <-b.listings:
		if !ok {
			t.Fatal("the listings ended")
		}
		return l, time.Since(b.start)
	case <-time.After(time.Hour):
		t.Fatal("no listing within an hour")
	}
	return stage.Listing{}, 0
}

// requireEnded fails unless Run has returned the cause of its context and
// closed the listings without another one.
func (b *bed) requireEnded(t *testing.T) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-b.ended:
		if !errors.Is(err, errStop) {
			t.Errorf("Run = %v, want the cause of its context", err)
		}
	default:
		t.Fatal("Run has not returned")
	}
	if l, ok := <-b.listings; ok {
		t.Errorf("listing after the end: %+v", l)
	}
}
