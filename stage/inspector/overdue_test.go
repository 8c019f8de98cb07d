package inspector_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestOverdueInspectionsAreVisible requires that a hung inspection is published with its
// pod as soon as it is older than HungAfter.
func TestOverdueInspectionsAreVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, hanging(nil), inspector.Options{Inspectors: 4, HungAfter: hungAfter})
		began := time.Now()
		f.inspect <- one("hung-0")
		time.Sleep(hungAfter / 2)
		// It began later and has ended: the other inspection is hung, not slow.
		f.do(one("quick"))
		time.Sleep(hungAfter/2 - time.Millisecond)
		synctest.Wait()
		if overdue := f.inspector.State().Overdue; len(overdue) != 0 {
			t.Errorf("overdue %+v before HungAfter, want none", overdue)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		overdue := f.inspector.State().Overdue
		if len(overdue) != 1 || overdue[0].UID != "hung-0" || overdue[0].Name == "" || !overdue[0].Started.Equal(began) || !overdue[0].Hung {
			t.Errorf("overdue %+v, want pod hung-0, hung since %v", overdue, began)
		}
		if inFlight := f.inspector.State().InFlight; inFlight != 1 {
			t.Errorf("%d inspections in flight, want 1", inFlight)
		}
		time.Sleep(timeout)
		synctest.Wait()
		if overdue := f.inspector.State().Overdue; len(overdue) != 0 {
			t.Errorf("overdue %+v after it has ended, want none", overdue)
		}
	})
}

// An inspection that was overtaken is reported early, any other once nobody waits for it.
func TestHangIsReportedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		overtaken bool
		at        time.Duration
	}{"overtaken": {true, hungAfter / 2}, "not overtaken": {false, 5 * hungAfter}} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, hanging(nil), inspector.Options{Inspectors: 4, HungAfter: hungAfter / 2})
			began := time.Now()
			f.inspect <- one("hung")
			time.Sleep(hungAfter / 4)
			if tc.overtaken {
				f.do(one("quick"))
			}
			if s := <-f.settled; s != (stage.Settled{UID: "hung", Hangs: true}) || time.Since(began) != tc.at {
				t.Errorf("settled %+v after %v, want that it hangs after %v", s, time.Since(began), tc.at)
			}
			f.inspect <- one("quick")
			if s := <-f.settled; s.UID != "quick" {
				t.Errorf("settled %+v, want the other one", s)
			}
			if s := <-f.settled; s.Hangs || !s.Hung || s.Took != timeout {
				t.Errorf("settled %+v, want the end after %v", s, timeout)
			}
		})
	}
}

// Between the end of a hung inspection and the quarantine of its pod, no look may find the pod in
// neither: it would count as failed, and the trouble as over.
func TestHangIsVisibleUntilTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixtureWithBuffer(t, hanging(nil), inspector.Options{HungAfter: hungAfter}, 0)
		f.inspect <- one("hung")
		f.end()
		synctest.Wait() // the differ applies what it received
		if overdue := f.inspector.State().Overdue; len(overdue) != 1 {
			t.Errorf("overdue %+v, want the inspection that hung", overdue)
		}
		<-f.settled
		synctest.Wait()
		if overdue := f.inspector.State().Overdue; len(overdue) != 0 {
			t.Errorf("overdue %+v, want none", overdue)
		}
	})
}

func TestRetryMayHaveAShorterTimeout(t *testing.T) {
	for own, want := range map[time.Duration]time.Duration{0: timeout, 3 * time.Second: 3 * time.Second, time.Hour: timeout} {
		kit.Bubble(t, own.String(), func(t *testing.T) {
			f := newFixture(t, hanging(nil), inspector.Options{})
			c := one("hung")
			c.Retry, c.Timeout = true, own
			f.retry <- c
			if s := <-f.settled; s.Took != want || !s.Hung {
				t.Errorf("settled %+v, want the timeout of %v", s, want)
			}
		})
	}
}

// TestFailureIsLoggedOnce has a pod whose inspections fail, then one succeeds.
func TestFailureIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil, inspector.Options{})
		inspect := func(fault plegtest.Fault) {
			f.runtime.SetInspectFault(fault)
			f.do(one("a"))
		}
		failing := func(context.Context) error { return errInspect }
		inspect(failing)
		inspect(failing)
		f.logged.RequireLines(t, 1, "inspection failed, will be retried")
		inspect(nil)
		inspect(failing)
		f.logged.RequireLines(t, 2, "inspection failed, will be retried")
		f.gone <- stage.Change{UID: "a", Last: one("a").Pod}
		<-f.settled
		inspect(failing)
		f.logged.RequireLines(t, 3, "inspection failed, will be retried")
	})
}
