package inspector_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// An inspection that the differ ends is no answer of the runtime: the cache keeps the status
// before.
func TestCancelledInspection(t *testing.T) {
	const old = 3 * hungAfter
	cut := stage.Settled{How: stage.FailedLate}
	for name, tc := range map[string]struct {
		cancel    stage.Cancel
		age       time.Duration
		overtaken bool
		want      stage.Settled // the error without the common prefix; zero if the inspection continues
	}{
		"its pod is gone":      {stage.Cancel{Gone: true}, 7*time.Millisecond + 1, false, stage.Settled{How: stage.Superseded}},
		"on request":           {stage.Cancel{After: old}, old, false, cut},
		"on request, older":    {stage.Cancel{After: old}, old + 1, false, cut},
		"on request, younger":  {stage.Cancel{After: old}, old - 1, false, stage.Settled{}},
		"on request, at once":  {stage.Cancel{}, hungAfter - 1, false, stage.Settled{}},
		"on request, a second": {stage.Cancel{}, hungAfter, false, cut},
		"on request, it hangs": {stage.Cancel{After: old}, hungAfter, true, stage.Settled{How: stage.FailedHung}},
		"on request, no hang":  {stage.Cancel{After: old}, hungAfter - 1, true, stage.Settled{}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
			f.do(one("a"))
			f.runtime.SetPodFault("a", plegtest.Hang)
			f.inspect <- one("a")
			time.Sleep(tc.age)
			if tc.overtaken {
				f.do(one("quick"))
			}
			for len(f.settled) > 0 { // an inspection hangs
				<-f.settled
			}
			tc.cancel.UID = "a"
			f.stop <- tc.cancel
			synctest.Wait()
			var got stage.Settled
			if len(f.settled) > 0 {
				got = <-f.settled
				says := fmt.Sprintf(": cancelled after %v, on request: context canceled", tc.age.Round(time.Millisecond))
				if tc.cancel.Gone {
					says = ": the pod is gone, cancelled after 7ms: context canceled"
				}
				if got.UID != "a" || got.Err == nil || !strings.HasSuffix(got.Err.Error(), says) || got.Took != tc.age {
					t.Errorf("settled %+v, want a cancelled inspection of %v", got, tc.age)
				}
				got.UID, got.Err, got.Took = "", nil, 0
			}
			if got != tc.want {
				t.Errorf("settled %+v, want %+v", got, tc.want)
			}
			if _, err := f.cache.Get("a"); err != nil {
				t.Errorf("the cache has %v, want the status", err)
			}
			answers := int64(1)
			if tc.overtaken {
				answers = 2
			}
			if n := f.answered.Load(); n != answers {
				t.Errorf("%d inspections ended by themselves, want %d", n, answers)
			}
		})
	}
}

func TestCacheIsWrittenBeforeTheOutcomeAndSettledAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWithBuffer(t, nil, inspector.Options{}, 0)
		ended, end := context.WithCancel(t.Context())
		end() // GetNewerThan does not wait
		gone := plegtest.Pod("a", "c=running")
		for n, send := range []func(){
			func() { f.inspect <- change(1, plegtest.Pod("a", "c=running")) },
			func() { f.gone <- stage.Change{UID: "a", Last: gone, At: at(2)} },
		} {
			send()
			synctest.Wait() // the inspector is blocked on its outcome
			if _, err := f.cache.GetNewerThan(ended, "a", at(n+1).Add(-1)); errors.Is(err, context.Canceled) {
				t.Errorf("the cache is not written at the outcome %d", n+1)
			}
			select {
			case s := <-f.settled:
				t.Errorf("settled %+v before the outcome was received", s)
			case o := <-f.outcomes:
				if o.UID != "a" || (o.Pod != nil) == (n == 1) || (o.Status != nil) == (n == 1) || n == 0 && o.Pod.UID != "a" || (o.Last == gone) != (n == 1) {
					t.Errorf("outcome %d is %+v", n+1, o)
				}
			}
			<-f.settled
		}
		f.runtime.SetInspectFault(plegtest.Fail(errInspect))
		f.inspect <- change(3, plegtest.Pod("a", "c=running"))
		synctest.Wait() // the inspector is blocked on the end
		if _, err := f.cache.Get("a"); !errors.Is(err, errInspect) {
			t.Errorf("the cache has %v before the failure is settled", err)
		}
		<-f.settled
	})
}

// The cache stays readable after Run, with its last content.
func TestEndOfRunFailsNoInspection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		f.do(change(1, plegtest.Pod("a", "c=running")))
		f.runtime.SetInspectFault(plegtest.Hang)
		f.inspect <- change(2, plegtest.Pod("a", "c=exited"))
		synctest.Wait()
		f.cancel()
		if s := <-f.settled; s.How != stage.Failed {
			t.Errorf("settled %+v, want a failure that hangs nothing", s)
		}
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
		if got := f.last.Load(); got == nil || *got != (answer{"a", 4 * time.Second, time.Now()}) {
			t.Errorf("an inspection ended by itself: %+v, want that of a", got)
		}
		want("pleg_inspections_in_flight", 1)
		want("pleg_inspection_oldest_seconds", 3)
		<-f.settled
		f.runtime.SetInspectFault(plegtest.Fail(errInspect))
		f.do(change(2, plegtest.Pod("a", "c=running")))
		want("pleg_inspections_in_flight", 0)
		want("pleg_inspection_oldest_seconds", 0)
		if n := f.answered.Load(); n != 3 {
			t.Errorf("%d inspections ended by themselves, want all: one failed", n)
		}
		want("pleg_inspection_errors_total", 1)
		want("pleg_inspection_duration_seconds", 3)
		kit.RequireSum(t, f.metrics, 4+4, "pleg_inspection_duration_seconds")
	})
}

// The runtime answers if an inspection succeeds or fails soon, and not if one fails late.
func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{HungAfter: hungAfter})
		var want time.Time
		for _, tc := range []struct {
			takes   time.Duration
			fails   bool
			answers bool
		}{
			{1, true, true}, {1, false, true}, {hungAfter - 1, true, true}, {hungAfter, true, false}, {3 * hungAfter, false, true},
		} {
			f.runtime.SetInspectFault(func(context.Context) error {
				time.Sleep(tc.takes)
				if tc.fails {
					return errInspect
				}
				return nil
			})
			f.do(change(1, plegtest.Pod("a", "c=running")))
			if tc.answers {
				want = time.Now()
			}
			if got := f.inspector.State().Answered; !got.Equal(want) {
				t.Errorf("an inspection of %v, which fails: %v: answered at %v, want %v", tc.takes, tc.fails, got, want)
			}
			time.Sleep(time.Second)
		}
	})
}
