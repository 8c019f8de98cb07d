package inspector_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

func TestCacheIsWrittenBeforeTheOutcomeAndSettledAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &fakeCache{pods: make(map[pleg.PodUID]written)}
		i, err := inspector.New(inspector.Options{
			Runtime: fakeRuntime(asListed), Cache: c, Inspectors: 1, InspectTimeout: timeout, HungAfter: timeout,
			Logger: slog.New(slog.DiscardHandler), Metrics: noMetrics,
		})
		if err != nil {
			t.Fatalf("New: %v", err)
		}
		inspect, retry, known := make(chan stage.Change), make(chan stage.Change), make(chan stage.Change)
		outcomes, settled := make(chan stage.Outcome), make(chan stage.Settled)
		go func() { _ = i.Run(t.Context(), inspect, retry, known, outcomes, settled) }()
		defer func() { close(inspect); close(retry); close(known) }()
		for n, send := range []func(){
			func() { inspect <- change(1, plegtest.Pod("a", "c=running")) },
			func() { known <- stage.Change{UID: "a", At: at(2)} },
		} {
			send()
			synctest.Wait() // it is blocked on its outcome
			if w, ok := c.get("a"); !ok || !w.at.Equal(at(n+1)) {
				t.Errorf("cache at the outcome = %+v, want it written at %v", w, at(n+1))
			}
			select {
			case s := <-settled:
				t.Errorf("settled %+v before the outcome was taken", s)
			case <-outcomes:
			}
			<-settled
		}
	})
}

func TestEndsOnceItsInputsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		b := newBed(t, func(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			<-release
			return plegtest.Status(pod), nil
		}, inspector.Options{Inspectors: 2})
		b.inspect <- change(1, plegtest.Pod("a", "c=running"))
		b.finish()
		synctest.Wait()
		if len(b.ended) > 0 {
			t.Fatal("Run returned while an inspection was under way")
		}
		close(release)
		if err := <-b.ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if o, ok := <-b.outcomes; !ok || o.UID != "a" {
			t.Errorf("outcome = %+v, %v, want that of the inspection that was under way", o, ok)
		}
		if s, ok := <-b.settled; !ok || s.Err != nil {
			t.Errorf("settled = %+v, %v, want pod a", s, ok)
		}
		if _, ok := <-b.outcomes; ok {
			t.Error("outcomes not closed")
		}
		if _, ok := <-b.settled; ok {
			t.Error("settled not closed")
		}
	})
}

func TestCancelSaysNothingAboutThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(ctx context.Context, _ *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, inspector.Options{})
		b.inspect <- change(1, plegtest.Pod("a", "c=running"))
		time.Sleep(time.Second)
		start := time.Now()
		b.cancel()
		b.finish()
		if err := <-b.ended; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("the inspection ended after %v, want at once", took)
		}
		if w, ok := b.cache.get("a"); ok {
			t.Errorf("cache has %+v of an inspection that was cut off", w)
		}
		if o, ok := <-b.outcomes; ok {
			t.Errorf("outcome %+v of an inspection that was cut off", o)
		}
		if s := <-b.settled; s.Err == nil || s.Hung != 0 {
			t.Errorf("settled %+v, want an error of a pod that did not hang", s)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		fails := false
		b := newBed(t, func(ctx context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
			if fails {
				return nil, errInspect
			}
			select {
			case <-time.After(4 * time.Second):
				return plegtest.Status(pod), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}, inspector.Options{Inspectors: 2, Metrics: instrument.Registry{Registerer: reg}})
		want := func(name string, value float64) {
			t.Helper()
			families, err := reg.Gather()
			if err != nil {
				t.Fatalf("gather: %v", err)
			}
			for _, f := range families {
				if m := f.GetMetric()[0]; f.GetName() == name {
					if got := m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); got != value {
						t.Errorf("%s = %v, want %v", name, got, value)
					}
					return
				}
			}
			t.Errorf("no metric %s", name)
		}
		want("pleg_inspection_oldest_seconds", 0)
		b.inspect <- change(1, plegtest.Pod("a", "c=running"))
		time.Sleep(time.Second)
		b.inspect <- change(1, plegtest.Pod("b", "c=running"))
		time.Sleep(2 * time.Second)
		want("pleg_inspections_in_flight", 2)
		want("pleg_inspection_oldest_seconds", 3)
		<-b.settled
		synctest.Wait()
		want("pleg_inspections_in_flight", 1)
		want("pleg_inspection_oldest_seconds", 3)
		<-b.settled
		fails = true
		b.do(change(2, plegtest.Pod("a", "c=running")))
		want("pleg_inspections_in_flight", 0)
		want("pleg_inspection_oldest_seconds", 0)
		want("pleg_inspection_errors_total", 1)
		want("pleg_inspection_duration_seconds", 3)
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
	})
}
