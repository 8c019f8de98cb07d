package lister_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/lister"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	period    = time.Second
	threshold = 3 * time.Minute

	periodWithEvents = time.Minute
)

var errList = errors.New("the runtime is broken")

// faultyRuntime returns a runtime without pods with this fault of lists.
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
	logged   kit.Log
	listings chan stage.Listing
	start    time.Time
	stop     func() error
}

func newFixture(t *testing.T, rt *plegtest.Runtime, period time.Duration) *fixture {
	t.Helper()
	return newFixtureWith(t, rt, nil, period, 0)
}

// newFixtureWith buffers some listings that nobody receives.
func newFixtureWith(t *testing.T, rt *plegtest.Runtime, prober pleg.Prober, period time.Duration, room int, change ...func(*lister.Options)) *fixture {
	t.Helper()
	f := &fixture{runtime: rt, metrics: prometheus.NewPedanticRegistry(), listings: make(chan stage.Listing, room), start: time.Now()}
	o := lister.Options{
		Runtime: rt, Prober: prober, Ticks: new(stage.Ticks),
		RelistPeriod: period, RelistThreshold: threshold, RelistPeriodWithEvents: periodWithEvents,
		Logger: f.logged.Logger(), Metrics: instrument.Registry{Registerer: f.metrics},
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	f.lister, err = lister.New(o)
	kit.Must(t, err)
	f.stop = kit.Run(t, func(ctx context.Context) error { return f.lister.Run(ctx, f.listings) })
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

// sleepUntil waits until the given time after the start.
func (f *fixture) sleepUntil(after time.Duration) {
	time.Sleep(time.Until(f.start.Add(after)))
	synctest.Wait()
}
