package differ_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// requireReports checks what was reported of the stream since the last check.
func (f *fixture) requireReports(t *testing.T, when string, unannounced int, announced ...bool) {
	t.Helper()
	synctest.Wait()
	if f.lister.unannounced != unannounced || !slices.Equal(f.lister.announced, announced) {
		t.Errorf("%s: reported %d unannounced changes and clean listings %v, want %d and %v",
			when, f.lister.unannounced, f.lister.announced, unannounced, announced)
	}
	f.lister.unannounced, f.lister.announced = 0, nil
}

// showAgain sends listings of a pod, one each second.
func (f *fixture) showAgain(times int, pod *pleg.Pod) {
	for range times {
		f.show(pod)
		f.end(nil)
		time.Sleep(time.Second)
	}
}

func TestListingsAreReportedToTheLister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, attempts(0))
		f.showAgain(2, attempts(0))
		f.requireReports(t, "nothing changed", 0, false, false)
		f.showAgain(6, attempts(1))
		f.requireReports(t, "the event may still come", 0)
		f.showAgain(1, attempts(1))
		f.requireReports(t, "it has not come", 3, false) // died, removed, and the next attempt started
		f.hear(1, hint("a", "x=running", "-"))
		f.showAgain(2, attempts(1))
		f.requireReports(t, "an event came", 0, true, true)
		f.showAgain(7, attempts(2))
		f.requireReports(t, "missed again, and no event since", 3, false)
	})
}

func TestChangesThatAreNoFaultOfTheStream(t *testing.T) {
	exited := plegtest.Pod("a", "c=exited")
	for name, happens := range map[string]func(f *fixture){
		"no stream":             func(f *fixture) { f.list(exited) },
		"the stream has ended":  func(f *fixture) { f.showBroken(exited) },
		"announced in a moment": func(f *fixture) { f.show(exited); f.hear(-1, hint("a", "c=exited", "-")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.settledList(t, plegtest.Pod("a", "c=running"))
				happens(f)
				f.end(nil)
				time.Sleep(time.Minute)
				f.lister.announced = nil
				f.showAgain(3, exited)
				heard := name == "announced in a moment"
				f.requireReports(t, "at the end", 0, heard, heard, heard)
			})
		})
	}
}

func TestOnlyListingsWithAStreamAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, attempts(0))
		f.hear(1, hint("a", "x=running", "-"))
		for range 10 {
			f.list(attempts(0))
			f.showBroken(attempts(0))
			f.end(nil)
		}
		f.requireReports(t, "lists without a stream", 0)
	})
}

func TestListingWithSomethingUnannouncedIsFollowedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, attempts(0))
		f.show(attempts(0))
		if n := f.lister.relists.Load(); n != 0 {
			t.Errorf("another list was asked for %d times after one without a change", n)
		}
		f.show(attempts(1))
		if n := f.lister.relists.Load(); n != 1 {
			t.Errorf("another list was asked for %d times, want once", n)
		}
	})
}

// A runtime that makes up pods does not fill the memory.
func TestPodsThatOnlyEventsShowAreBounded(t *testing.T) {
	const bound = 4096
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t)
		taken := 0
		hear := func(n int) {
			for i := range n {
				f.hear(1, full(hint(pleg.PodUID(fmt.Sprint("p-", taken, "-", i)), "/s=running", "/s=running")))
				if _, ok := f.poll(); ok {
					taken++
				}
			}
		}
		hear(bound)
		if n := f.lister.relists.Load(); taken != bound || n != 0 {
			t.Errorf("%d pods were taken and %d lists asked for, want %d and none", taken, n, bound)
		}
		hear(10)
		if n := f.lister.relists.Load(); taken != bound || n == 0 {
			t.Errorf("%d pods were taken and %d lists asked for, want %d and some", taken, n, bound)
		}
		f.list()
		hear(1)
		if taken != bound+1 {
			t.Errorf("after a list %d pods were taken, want one more than %d", taken, bound)
		}
	})
}
