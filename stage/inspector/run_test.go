package inspector_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

func TestCacheIsWrittenBeforeTheOutcomeAndSettledAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWithBuffer(t, nil, inspector.Options{}, 0)
		ended, end := context.WithCancel(t.Context())
		end() // GetNewerThan does not wait
		for n, send := range []func(){
			func() { f.inspect <- change(1, plegtest.Pod("a", "c=running")) },
			func() { f.gone <- stage.Change{UID: "a", At: at(2)} },
		} {
			send()
			synctest.Wait() // the inspector is blocked on its outcome
			if _, err := f.cache.GetNewerThan(ended, "a", at(n+1).Add(-1)); errors.Is(err, context.Canceled) {
				t.Errorf("the cache is not written at the outcome %d", n+1)
			}
			select {
			case s := <-f.settled:
				t.Errorf("settled %+v before the outcome was received", s)
			case <-f.outcomes:
			}
			<-f.settled
		}
	})
}

// The cache stays readable after Run, with what was known last.
func TestEndOfRunFailsNoInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		f.do(change(1, plegtest.Pod("a", "c=running")))
		f.runtime.SetInspectFault(plegtest.Hang)
		f.inspect <- change(2, plegtest.Pod("a", "c=exited"))
		synctest.Wait()
		f.cancel()
		<-f.settled
		if _, err := f.cache.Get("a"); err != nil {
			t.Errorf("the cache has %v after the end, want the last status", err)
		}
	})
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: time.Second})
		f.runtime.SetInspectFault(plegtest.Delay(4 * time.Second))
		want := func(name string, value float64) { t.Helper(); f.requireMetric(t, name, value) }
		want("pleg_inspection_oldest_seconds", 0)
		f.inspect <- change(1, plegtest.Pod("a", "c=running"))
		time.Sleep(time.Second)
		f.inspect <- change(1, plegtest.Pod("b", "c=running"))
		time.Sleep(2 * time.Second)
		want("pleg_inspections_in_flight", 2)
		want("pleg_inspection_oldest_seconds", 3)
		<-f.settled
		synctest.Wait()
		want("pleg_inspections_in_flight", 1)
		want("pleg_inspection_oldest_seconds", 3)
		<-f.settled
		f.runtime.SetInspectFault(plegtest.Fail(errInspect))
		f.do(change(2, plegtest.Pod("a", "c=running")))
		want("pleg_inspections_in_flight", 0)
		want("pleg_inspection_oldest_seconds", 0)
		want("pleg_inspection_errors_total", 1)
		want("pleg_inspection_duration_seconds", 3)
	})
}
