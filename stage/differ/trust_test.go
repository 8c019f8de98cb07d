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

// requireDoubts wants the lister to have been told this of the stream so far.
func (b *bed) requireDoubts(t *testing.T, when string, want ...bool) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(b.doubts, want) {
		t.Errorf("%s: the stream was doubted %v, want %v", when, b.doubts, want)
	}
	doubted := 0.
	if n := len(want); n > 0 && want[n-1] {
		doubted = 1
	}
	if got := b.counter(t, "pleg_event_stream_doubted"); got != doubted {
		t.Errorf("%s: the metric is %v, want %v", when, got, doubted)
	}
}

// showAgain sends so many listings of a pod, one each second.
func (b *bed) showAgain(times int, pod *pleg.Pod) {
	for range times {
		b.show(pod)
		b.end(nil)
		time.Sleep(time.Second)
	}
}

// lose has a listing show the next attempt of a container of which no event
// tells, and listings after it for as long as one might come.
func (b *bed) lose(pod *pleg.Pod) { b.showAgain(6, pod) }

func TestStreamThatMissesChangesIsDoubtedUntilProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, attempts(0))
		b.showAgain(10, attempts(0))
		b.requireDoubts(t, "nothing missed")

		b.lose(attempts(1))
		b.requireDoubts(t, "an event may still come")
		b.showAgain(1, attempts(1))
		b.requireDoubts(t, "missed", true)
		b.showAgain(500, attempts(1))
		b.requireDoubts(t, "clean, and not a word", true)
		b.hear(1, hint("a", "x=running", "-"))
		b.showAgain(1, attempts(1))
		b.requireDoubts(t, "clean, and an event", true, false)

		b.lose(attempts(2))
		b.showAgain(1, attempts(2))
		b.requireDoubts(t, "missed again", true, false, true)
		b.hear(1, hint("a", "x=running", "-"))
		b.showAgain(100, attempts(2))
		b.requireDoubts(t, "it takes twice as long", true, false, true)
		b.lose(attempts(3))
		b.hear(1, hint("a", "x=running", "-"))
		b.showAgain(119, attempts(3))
		b.requireDoubts(t, "missed meanwhile", true, false, true)
		b.showAgain(1, attempts(3))
		b.requireDoubts(t, "and so long without", true, false, true, false)
	})
}

func TestChangesWithoutAStreamAreNoReasonForDoubt(t *testing.T) {
	exited := plegtest.Pod("a", "c=exited")
	for name, happens := range map[string]func(b *bed){
		"no stream":             func(b *bed) { b.list(exited) },
		"the stream has ended":  func(b *bed) { b.showBroken(exited) },
		"announced in a moment": func(b *bed) { b.show(exited); b.hear(-1, hint("a", "c=exited", "-")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.settledList(t, plegtest.Pod("a", "c=running"))
				happens(b)
				b.end(nil)
				time.Sleep(time.Minute)
				b.showAgain(3, exited)
				b.requireDoubts(t, "at the end")
			})
		})
	}
}

// Listings without a stream are no proof of one.
func TestOnlyAnnouncedListingsRestoreTrust(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, attempts(0))
		b.lose(attempts(1))
		b.showAgain(1, attempts(1))
		b.hear(1, hint("a", "x=running", "-"))
		for range 100 {
			b.list(attempts(1))
			b.showBroken(attempts(1))
			b.end(nil)
		}
		b.requireDoubts(t, "100 lists without a stream", true)
	})
}

func TestListingWithSomethingUnannouncedIsFollowedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, attempts(0))
		b.show(attempts(0))
		if n := b.retries.Load(); n != 0 {
			t.Errorf("another list was asked for %d times after one without a change", n)
		}
		b.show(attempts(1))
		if n := b.retries.Load(); n != 1 {
			t.Errorf("another list was asked for %d times, want once", n)
		}
	})
}

// What a runtime makes up between two listings is not kept without bound.
func TestPodsOfWhichOnlyEventsTellAreBounded(t *testing.T) {
	const bound = 4096
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t)
		taken := 0
		hear := func(n int) {
			for i := range n {
				b.hear(1, full(hint(pleg.PodUID(fmt.Sprint("p-", taken, "-", i)), "/s=running", "/s=running")))
				if _, ok := b.poll(); ok {
					taken++
				}
			}
		}
		hear(bound)
		if n := b.retries.Load(); taken != bound || n != 0 {
			t.Errorf("%d pods were taken and %d lists asked for, want %d and none", taken, n, bound)
		}
		hear(10)
		if n := b.retries.Load(); taken != bound || n == 0 {
			t.Errorf("%d pods were taken and %d lists asked for, want %d and some", taken, n, bound)
		}
		b.list()
		hear(1)
		if taken != bound+1 {
			t.Errorf("after a list %d pods were taken, want one more than %d", taken, bound)
		}
	})
}
