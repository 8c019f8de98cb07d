package lister_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/border"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	period    = time.Second
	threshold = 3 * time.Minute
	timeout   = 10 * time.Second

	periodWithEvents = time.Minute
)

var (
	errList = errors.New("the runtime is broken")
	errStop = errors.New("the test stops the lister")
)

// faultyRuntime returns a runtime without pods whose lists have the fault.
func faultyRuntime(fault plegtest.Fault) *plegtest.Runtime {
	rt := plegtest.New()
	rt.SetListFault(fault)
	return rt
}

// fixture is a lister that runs in a bubble.
type fixture struct {
	lister   *lister.Lister
	runtime  *plegtest.Runtime
	metrics  *prometheus.Registry
	logged   bytes.Buffer // read it only while the lister waits
	listings chan stage.Listing
	ended    chan error
	start    time.Time
	stop     func()
}

func newFixture(t *testing.T, rt *plegtest.Runtime) *fixture {
	t.Helper()
	return newFixtureWithPeriod(t, rt, period)
}

func newFixtureWithPeriod(t *testing.T, rt *plegtest.Runtime, period time.Duration) *fixture {
	t.Helper()
	runtime, err := border.New(rt, border.Options{ListTimeout: timeout, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("border: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	f := &fixture{
		metrics: prometheus.NewPedanticRegistry(), listings: make(chan stage.Listing), ended: make(chan error, 1), start: time.Now(),
		stop: func() { cancel(errStop) }, runtime: rt,
	}
	f.lister, err = lister.New(lister.Options{
		Runtime: runtime, RelistPeriod: period, RelistThreshold: threshold, RelistPeriodWithEvents: periodWithEvents,
		Logger: slog.New(slog.NewTextHandler(&f.logged, nil)), Metrics: instrument.Registry{Registerer: f.metrics},
	})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(f.stop)
	go func() { f.ended <- f.lister.Run(ctx, f.listings) }()
	return f
}

// next returns the next listing and the time from the start to it.
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
