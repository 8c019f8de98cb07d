package lister_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

func TestRelistPeriodBeginsWhenTheListEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		rt.Set("1", "c=running")
		rt.SetListFault(func(context.Context) error {
			calls := rt.Counts().Lists
			time.Sleep(time.Duration(calls) * 100 * time.Millisecond)
			rt.SetList([]*pleg.Pod{plegtest.Pod(pleg.PodUID(fmt.Sprint(calls+1)), "")}) // for the next list
			return nil
		})
		f := newFixture(t, rt, period)
		for i, want := range []struct{ at, sent time.Duration }{
			{0, 100 * time.Millisecond},
			{1100 * time.Millisecond, 1300 * time.Millisecond},
			{2300 * time.Millisecond, 2600 * time.Millisecond},
		} {
			l, sent := f.next(t)
			if at := l.At.Sub(f.start); at != want.at || sent != want.sent {
				t.Errorf("listing %d: began at %v and came at %v, want %v and %v", i, at, sent, want.at, want.sent)
			}
			if len(l.Pods) != 1 || l.Pods[0].UID != pleg.PodUID(fmt.Sprint(i+1)) {
				t.Errorf("listing %d has pods %v, want the pods of its list", i, l.Pods)
			}
			if got := f.lister.Status(); !got.Success.Equal(l.At) || got.Err != nil {
				t.Errorf("Status after listing %d = %+v, want a success at %v", i, got, l.At)
			}
		}
	})
}

func TestNextRelistWaitsUntilTheListingIsReceived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt, period)
		time.Sleep(time.Minute)
		synctest.Wait()
		if lists := rt.Counts().Lists; lists != 1 {
			t.Errorf("lists before the first listing was received = %d, want 1", lists)
		}
		f.next(t)
		if _, sent := f.next(t); sent != time.Minute+period {
			t.Errorf("second listing came at %v, want %v", sent, time.Minute+period)
		}
	})
}

// Only the third list and the fourth fail, at once or late.
func TestFailedListIsRetriedAPeriodLater(t *testing.T) {
	recovered := func(t *testing.T, f *fixture, want int) {
		if got := len(f.lister.Recovered()); got != want {
			t.Errorf("recovered %d times, want %d", got, want)
		}
	}
	for _, took := range []time.Duration{0, 10 * time.Second} {
		testLister(t, next(0, false), next(period, false), failAfter(took), until(2*period+took), func(t *testing.T, f *fixture) {
			if last := f.lister.Status(); last.Success.Sub(f.start) != period || !errors.Is(last.Err, errList) {
				t.Errorf("Status = %+v, want the success of the second list and the error of the third", last)
			}
		}, failAfter(took), until(3*period+2*took), func(t *testing.T, f *fixture) {
			f.logged.RequireLines(t, 1, "relist failed")
			recovered(t, f, 0)
		}, next(4*period+2*took, false), func(t *testing.T, f *fixture) {
			if err := f.lister.Status().Err; err != nil {
				t.Errorf("Status().Err after a successful list = %v, want nil", err)
			}
			f.logged.RequireLines(t, 1, "failures=2")
			recovered(t, f, 1)
		})
	}
}

// With a very short period a list is due all the time. newFixture requires that Run ends. In
// a bubble no list would be due, because time stands still there.
func TestRunEndsAlthoughAListIsDue(t *testing.T) {
	newFixture(t, faultyRuntime(plegtest.Hang), 1)
}
