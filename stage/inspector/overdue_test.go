package inspector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

func callOf(uid pleg.PodUID) *pleg.Call {
	return &pleg.Call{Method: "ContainerStatus", Container: "c", PodUID: uid}
}

// TestOverdueInspectionsAreVisible requires that a hung inspection is published and
// logged once with its pod and call as soon as it is older than HungAfter.
func TestOverdueInspectionsAreVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, hanging(nil), inspector.Options{Inspectors: 4, HungAfter: hungAfter, CallOf: callOf})
		began := time.Now()
		f.inspect <- one("hung-0")
		time.Sleep(hungAfter / 2)
		// It ends after it has begun later: the other one is hung, not slow.
		f.do(one("quick"))
		time.Sleep(hungAfter/2 - time.Millisecond)
		synctest.Wait()
		if overdue := f.inspector.Overdue(); len(overdue) != 0 {
			t.Errorf("overdue %+v before HungAfter, want none", overdue)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		overdue := f.inspector.Overdue()
		if len(overdue) != 1 || overdue[0].UID != "hung-0" || overdue[0].Name == "" || !overdue[0].Started.Equal(began) || !overdue[0].Hung {
			t.Errorf("overdue %+v, want pod hung-0, hung since %v", overdue, began)
		}
		if inFlight := f.inspector.InFlight(); inFlight != 1 {
			t.Errorf("%d inspections in flight, want 1", inFlight)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if overdue := f.inspector.Overdue(); len(overdue) != 0 {
			t.Errorf("overdue %+v after it has ended, want none", overdue)
		}
		f.logged.RequireLines(t, 1, `podUID=hung-0 pod=ns/name-hung-0 call="ContainerStatus of c" age=1s`)
		f.logged.RequireLines(t, 1, "ContainerStatus of c")
	})
}

// A retry that hangs is not logged again: the differ has logged the pod.
func TestHungRetryIsNotLogged(t *testing.T) {
	testHanging(t, 4, func(t *testing.T, f *fixture) {
		again := one("hung-0")
		again.Retry = true
		f.retry <- again
		time.Sleep(hungAfter / 2)
		f.do(one("quick"))
		time.Sleep(hungAfter)
		synctest.Wait()
		f.logged.RequireLines(t, 0, "inspection hangs")
	})
}

// TestTookIsTheMedianOfTheLastMinute has a slow runtime that recovers.
func TestTookIsTheMedianOfTheLastMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{HungAfter: hungAfter})
		inspect := func(times int, d, want time.Duration) {
			t.Helper()
			f.runtime.SetInspectFault(plegtest.Delay(d))
			for range times {
				f.do(one("a"))
			}
			if got := f.inspector.Took(time.Now()); got != want {
				t.Errorf("after %d inspections of %v: %v, want %v", times, d, got, want)
			}
		}
		inspect(0, 0, 0)
		inspect(5, 2*time.Second, 2*time.Second)
		inspect(3, 10*time.Millisecond, 2*time.Second)
		inspect(2, 10*time.Millisecond, 10*time.Millisecond)
		time.Sleep(time.Minute)
		inspect(0, 0, 0)
	})
}
