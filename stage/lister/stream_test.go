package lister_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// requireNext requires a listing at the given time after the start.
func (f *fixture) requireNext(t *testing.T, want time.Duration, up bool) {
	t.Helper()
	l, sent := f.next(t)
	synctest.Wait() // until the lister has set its timer
	if sent != want || l.StreamUp != up || l.StreamUp && l.StreamBroke {
		t.Errorf("listing at %v, stream up %v, broke %v, want %v, %v, and not broken", sent, l.StreamUp, l.StreamBroke, want, up)
	}
}

// proof is the age at which an open stream counts as up.
const proof = 500 * time.Millisecond

// openStream opens a stream after the first list, receives the listing once it counts
// as up, and lets it earn the longest period.
func (f *fixture) openStream(t *testing.T) {
	t.Helper()
	f.requireNext(t, 0, false)
	f.lister.StreamOpened()
	f.requireNext(t, proof, false)
	f.earn()
}

// earn reports enough clean relists for the longest period.
func (f *fixture) earn() {
	for range 10 {
		f.lister.ChangesAnnounced(periodWithEvents, true)
	}
	synctest.Wait()
}

// sleepUntil waits until the given time after the start.
func (f *fixture) sleepUntil(after time.Duration) {
	time.Sleep(time.Until(f.start.Add(after)))
	synctest.Wait()
}

func TestStreamLengthensTheRelistPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, plegtest.New())
		f.openStream(t)
		f.requireNext(t, proof+periodWithEvents, true)
		f.sleepUntil(400 * time.Second)
		f.lister.StreamEnded()
		if l, sent := f.next(t); sent != 400*time.Second || !l.StreamUp || !l.StreamBroke { // for unannounced changes
			t.Errorf("listing at %v, stream up %v, broke %v, want one as the stream breaks", sent, l.StreamUp, l.StreamBroke)
		}
		f.lister.StreamEnded()
		f.requireNext(t, 401*time.Second, false)
		f.lister.StreamOpened()
		f.requireNext(t, 401*time.Second+proof, false)
	})
}

func TestStreamThatEndsEarlyIsNeverUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, plegtest.New())
		f.requireNext(t, 0, false)
		f.lister.StreamOpened()
		f.sleepUntil(proof - time.Millisecond)
		f.lister.StreamEnded()
		f.requireNext(t, period, false)
		f.requireNext(t, 2*period, false)
	})
}

func TestStreamThatComesUpDuringAListGetsAnotherList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := newFixture(t, faultyRuntime(func(context.Context) error {
			if calls++; calls == 1 {
				time.Sleep(3 * period)
			}
			return nil
		}))
		synctest.Wait()
		f.lister.StreamOpened()
		f.requireNext(t, 3*period, false)
		f.requireNext(t, 3*period, false)
		f.earn()
		f.requireNext(t, 3*period+periodWithEvents, true)
	})
}

func TestFailedListIsRetriedSoonWithAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := newFixture(t, faultyRuntime(func(context.Context) error {
			if calls++; calls == 3 {
				return errList
			}
			return nil
		}))
		f.openStream(t)
		f.requireNext(t, proof+periodWithEvents+period, true)
		f.requireNext(t, proof+2*periodWithEvents+period, true)
	})
}

func TestRequestShortensThePeriodWithEventsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, plegtest.New())
		f.requireNext(t, 0, false)
		f.sleepUntil(400 * time.Millisecond)
		f.lister.RelistSoon() // without a stream the request changes nothing
		f.requireNext(t, period, false)
		f.lister.StreamOpened()
		f.requireNext(t, period+proof, false)
		f.earn()
		f.sleepUntil(10 * time.Second)
		f.lister.RelistSoon()
		f.requireNext(t, 11*time.Second, true)
		f.requireNext(t, 11*time.Second+periodWithEvents, true)
	})
}

func TestRequestsInARowDoNotDelayTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, plegtest.New())
		f.openStream(t)
		f.sleepUntil(10 * time.Second)
		f.lister.RelistSoon()
		f.sleepUntil(10*time.Second + 500*time.Millisecond)
		f.lister.RelistSoon()
		f.requireNext(t, 11*time.Second, true)
		f.sleepUntil(11*time.Second + periodWithEvents - 500*time.Millisecond)
		f.lister.RelistSoon()
		f.requireNext(t, 11*time.Second+periodWithEvents, true)
	})
}

func TestHealthyWithEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt)
		require := func(after time.Duration, want string) {
			t.Helper()
			f.sleepUntil(after)
			ok, err := f.lister.Healthy()
			if ok != (want == "") || (err == nil) != ok || !ok && !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: Healthy = %v, %v, want %q", after, ok, err, want)
			}
		}
		f.openStream(t)
		require(0, "")
		rt.SetListFault(plegtest.Fail(errList))
		require(threshold+time.Minute, "") // the next list is not due yet
		require(proof+thresholdWithEvents, "")
		require(proof+thresholdWithEvents+time.Second, "last seen active 10m1s ago; threshold is 10m0s: list pods: "+errList.Error())
	})
}

// After a stream ends, the threshold without a stream applies from then on, however
// many streams follow.
func TestHealthyAfterTheStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt)
		f.openStream(t)
		rt.SetListFault(plegtest.Fail(errList))
		ended := 4 * time.Minute
		f.sleepUntil(ended)
		f.lister.StreamEnded()
		f.sleepUntil(ended + threshold)
		if ok, err := f.lister.Healthy(); !ok {
			t.Errorf("a threshold after the stream ended: %v", err)
		}
		f.sleepUntil(ended + threshold + time.Second)
		if ok, _ := f.lister.Healthy(); ok {
			t.Error("healthy longer than a threshold after the stream ended")
		}
		for range 5 {
			f.lister.StreamOpened()
			time.Sleep(time.Minute)
			f.lister.StreamEnded()
		}
		if ok, _ := f.lister.Healthy(); ok {
			t.Errorf("healthy %v after the last successful list, because a stream ended recently", time.Since(f.start))
		}
	})
}

// endDoubt waits for as long as the lister requires, and reports a confirmed event.
func (f *fixture) endDoubt() {
	f.sleepUntil(time.Since(f.start) + 10*time.Minute)
	f.lister.ChangesAnnounced(period, true)
}

// While nothing is unannounced, the time between two lists doubles.
func TestRelistPeriodGrowsWithTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, plegtest.New())
		f.requireNext(t, 0, false)
		f.lister.StreamOpened()
		f.requireNext(t, proof, false)
		at := proof
		for _, want := range []time.Duration{1, 2, 4, 8, 10, 10, 20, 40} {
			want *= time.Second
			at += want
			f.requireNext(t, at, true)
			f.lister.ChangesAnnounced(want, want == 10*time.Second && at > 30*time.Second)
			synctest.Wait()
		}
	})
}

func TestDoubtedStreamShortensTheRelistPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt)
		f.openStream(t)
		f.sleepUntil(10 * time.Second)
		f.lister.ChangesUnannounced(1)
		f.requireNext(t, 10*time.Second, true) // it was due after a period without events
		f.lister.ChangesUnannounced(1)
		f.requireNext(t, 11*time.Second, true)
		f.requireNext(t, 12*time.Second, true)
		f.endDoubt()
		const trusted = 10*time.Minute + 12*time.Second
		f.requireNext(t, trusted, true)
		f.earn()
		f.sleepUntil(trusted + time.Minute)
		f.requireNext(t, trusted+periodWithEvents, true)

		rt.SetListFault(plegtest.Fail(errList))
		doubted := trusted + periodWithEvents + 4*time.Minute
		f.sleepUntil(doubted)
		f.lister.ChangesUnannounced(1)
		f.sleepUntil(doubted + threshold)
		if ok, err := f.lister.Healthy(); !ok {
			t.Errorf("a threshold after the stream was doubted: %v", err)
		}
		f.sleepUntil(doubted + threshold + time.Second)
		if ok, _ := f.lister.Healthy(); ok {
			t.Error("healthy longer than a threshold after the stream was doubted")
		}
	})
}

// The end of a stream does not prolong the threshold with events.
func TestEndOfTheStreamMakesNothingHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := plegtest.New()
		f := newFixture(t, rt)
		f.openStream(t)
		rt.SetListFault(plegtest.Fail(errList))
		f.sleepUntil(proof + thresholdWithEvents + time.Second)
		f.lister.StreamEnded()
		if ok, _ := f.lister.Healthy(); ok {
			t.Errorf("healthy %v after the last successful list, because the stream has just ended", time.Since(f.start))
		}
	})
}

func TestUnhealthyBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, faultyRuntime(plegtest.Fail(errList)))
		synctest.Wait()
		if ok, err := f.lister.Healthy(); ok || !strings.Contains(err.Error(), "yet to be successful: list pods: "+errList.Error()) {
			t.Errorf("Healthy = %v, %v", ok, err)
		}
	})
}
