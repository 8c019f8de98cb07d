package lister_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func answers(context.Context) ([]*pleg.Pod, error) { return nil, nil }

// requireNext fails unless the next listing comes at this time after the start.
func (f *fixture) requireNext(t *testing.T, want time.Duration, up bool) {
	t.Helper()
	l, sent := f.next(t)
	synctest.Wait() // until the next one has its time
	if sent != want || l.StreamUp != up || l.StreamUp && l.StreamBroke {
		t.Errorf("listing at %v, stream up %v, broke %v, want %v, %v, and not broken", sent, l.StreamUp, l.StreamBroke, want, up)
	}
}

// proof is the age at which an open stream counts as up.
const proof = 500 * time.Millisecond

// follow opens a stream at the start; the list at its proof is the second one.
func (f *fixture) follow(t *testing.T) {
	t.Helper()
	f.requireNext(t, 0, false)
	f.lister.StreamOpened()
	f.requireNext(t, proof, false)
}

// pass waits until it is so long after the start.
func (f *fixture) pass(after time.Duration) {
	time.Sleep(time.Until(f.start.Add(after)))
	synctest.Wait()
}

func TestStreamStretchesThePeriodAndItsEndShortensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, answers, instrument.Registry{})
		f.follow(t) // the second list is for what happened before the stream was up
		f.requireNext(t, proof+periodWithEvents, true)
		f.pass(400 * time.Second)
		f.lister.StreamEnded()
		if l, sent := f.next(t); sent != 400*time.Second || !l.StreamUp || !l.StreamBroke { // for what it may have lost
			t.Errorf("listing at %v, stream up %v, broke %v, want one as the stream breaks", sent, l.StreamUp, l.StreamBroke)
		}
		f.lister.StreamEnded()
		f.requireNext(t, 401*time.Second, false)
		f.lister.StreamOpened()
		f.requireNext(t, 401*time.Second+proof, false)
	})
}

func TestStreamThatEndsBeforeItsProofIsNeverUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, answers, instrument.Registry{})
		f.requireNext(t, 0, false)
		f.lister.StreamOpened()
		f.pass(proof - time.Millisecond)
		f.lister.StreamEnded()
		f.requireNext(t, period, false)
		f.requireNext(t, 2*period, false)
	})
}

// A stream that comes up during a list gets a list of its own.
func TestStreamThatComesUpDuringAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
			if calls++; calls == 1 {
				time.Sleep(3 * period)
			}
			return nil, nil
		}, instrument.Registry{})
		synctest.Wait()
		f.lister.StreamOpened()
		f.requireNext(t, 3*period, false)
		f.requireNext(t, 3*period, false)
		f.requireNext(t, 3*period+periodWithEvents, true)
	})
}

func TestFailedListIsRetriedSoonWhateverTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
			if calls++; calls == 3 {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		f.follow(t)
		f.requireNext(t, proof+periodWithEvents+period, true)
		f.requireNext(t, proof+2*periodWithEvents+period, true)
	})
}

func TestRequestShortensTheLongPeriodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, answers, instrument.Registry{})
		f.requireNext(t, 0, false)
		f.pass(400 * time.Millisecond)
		f.lister.RelistSoon() // the short period applies: nothing is due earlier or later
		f.requireNext(t, period, false)
		f.lister.StreamOpened()
		f.requireNext(t, period+proof, false)
		f.pass(10 * time.Second)
		f.lister.RelistSoon()
		f.requireNext(t, 11*time.Second, true)
		f.requireNext(t, 11*time.Second+periodWithEvents, true)
	})
}

// Requests in a row must not delay the list.
func TestRequestsInARowDoNotDelayTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, answers, instrument.Registry{})
		f.follow(t)
		f.pass(10 * time.Second)
		f.lister.RelistSoon()
		f.pass(10*time.Second + 500*time.Millisecond)
		f.lister.RelistSoon()
		f.requireNext(t, 11*time.Second, true)
		f.pass(11*time.Second + periodWithEvents - 500*time.Millisecond)
		f.lister.RelistSoon()
		f.requireNext(t, 11*time.Second+periodWithEvents, true)
	})
}

func TestHealthyWithEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
			if away.Load() {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		require := func(after time.Duration, want string) {
			t.Helper()
			f.pass(after)
			ok, err := f.lister.Healthy()
			if ok != (want == "") || (err == nil) != ok || !ok && !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: Healthy = %v, %v, want %q", after, ok, err, want)
			}
		}
		f.follow(t)
		require(0, "")
		away.Store(true)
		require(threshold+time.Minute, "") // the next list is not due yet
		require(proof+thresholdWithEvents, "")
		require(proof+thresholdWithEvents+time.Second, "last seen active 10m1s ago; threshold is 10m0s: list pods: "+errList.Error())
	})
}

// After the stream breaks, lists have as long as without one. A stream that breaks
// again and again gives them no more.
func TestHealthyWhenTheStreamBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
			if away.Load() {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		f.follow(t)
		away.Store(true)
		broke := 4 * time.Minute
		f.pass(broke)
		f.lister.StreamEnded()
		f.pass(broke + threshold)
		if ok, err := f.lister.Healthy(); !ok {
			t.Errorf("a threshold after the stream broke: %v", err)
		}
		f.pass(broke + threshold + time.Second)
		if ok, _ := f.lister.Healthy(); ok {
			t.Error("healthy longer than a threshold after the stream broke")
		}
		for range 5 {
			f.lister.StreamOpened()
			time.Sleep(time.Minute)
			f.lister.StreamEnded()
		}
		if ok, _ := f.lister.Healthy(); ok {
			t.Errorf("healthy %v after the last good list, because the stream broke a moment ago", time.Since(f.start))
		}
	})
}

// endDoubt reports the relists that it takes.
func (f *fixture) endDoubt() {
	for range 60 {
		f.lister.ChangesAnnounced(true)
	}
}

func TestDoubtedStreamDoesNotStandInForLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) {
			if away.Load() {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		f.follow(t)
		f.pass(10 * time.Second)
		f.lister.ChangesUnannounced(1)
		f.requireNext(t, 11*time.Second, true)
		f.lister.ChangesUnannounced(1)
		f.requireNext(t, 12*time.Second, true)
		f.endDoubt()
		f.requireNext(t, 13*time.Second, true) // was due already
		f.pass(2 * time.Minute)
		f.requireNext(t, 13*time.Second+periodWithEvents, true)

		away.Store(true)
		doubted := 13*time.Second + periodWithEvents + 4*time.Minute
		f.pass(doubted)
		f.lister.ChangesUnannounced(1)
		f.pass(doubted + threshold)
		if ok, err := f.lister.Healthy(); !ok {
			t.Errorf("a threshold after the stream was doubted: %v", err)
		}
		f.pass(doubted + threshold + time.Second)
		if ok, _ := f.lister.Healthy(); ok {
			t.Error("healthy longer than a threshold after the stream was doubted")
		}
	})
}

func TestUnhealthyBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(context.Context) ([]*pleg.Pod, error) { return nil, errList }, instrument.Registry{})
		synctest.Wait()
		if ok, err := f.lister.Healthy(); ok || !strings.Contains(err.Error(), "yet to be successful: list pods: "+errList.Error()) {
			t.Errorf("Healthy = %v, %v", ok, err)
		}
	})
}
