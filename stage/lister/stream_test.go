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
func (b *bed) requireNext(t *testing.T, want time.Duration, announced bool) {
	t.Helper()
	l, sent := b.next(t)
	synctest.Wait() // until the next one has its time
	if sent != want || l.Announced != announced || l.Announced && l.Broken {
		t.Errorf("listing came at %v, announced %v, broken %v, want %v, %v, and not broken", sent, l.Announced, l.Broken, want, announced)
	}
}

// follow has a stream be up from the start.
func (b *bed) follow(t *testing.T) {
	t.Helper()
	b.requireNext(t, 0, false)
	b.lister.SetStream(true)
	b.requireNext(t, 0, false)
}

// pass waits until it is so long after the start.
func (b *bed) pass(after time.Duration) {
	time.Sleep(time.Until(b.start.Add(after)))
	synctest.Wait()
}

func TestStreamStretchesThePeriodAndItsEndShortensIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, answers, instrument.Registry{})
		b.requireNext(t, 0, false)
		b.pass(500 * time.Millisecond)
		b.lister.SetStream(true)
		b.requireNext(t, 500*time.Millisecond, false) // what happened before it was up
		b.lister.SetStream(true)
		b.requireNext(t, 500*time.Millisecond+periodWithEvents, true)
		b.pass(400 * time.Second)
		b.lister.SetStream(false)
		if l, sent := b.next(t); sent != 400*time.Second || !l.Announced || !l.Broken { // what it may have lost
			t.Errorf("listing came at %v, announced %v, broken %v, want it as the stream breaks, to be announced by it", sent, l.Announced, l.Broken)
		}
		b.lister.SetStream(false)
		b.requireNext(t, 401*time.Second, false)
		b.lister.SetStream(true)
		b.requireNext(t, 401*time.Second, false)
	})
}

func TestFailedListIsRetriedSoonWhateverTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) {
			if calls++; calls == 3 {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		b.follow(t)
		b.requireNext(t, periodWithEvents+period, true)
		b.requireNext(t, 2*periodWithEvents+period, true)
	})
}

func TestRetryShortensTheLongPeriodOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, answers, instrument.Registry{})
		b.requireNext(t, 0, false)
		b.pass(400 * time.Millisecond)
		b.lister.Retry() // the short period holds: nothing is due earlier or later
		b.requireNext(t, period, false)
		b.lister.SetStream(true)
		b.requireNext(t, period, false)
		b.pass(10 * time.Second)
		b.lister.Retry()
		b.requireNext(t, 11*time.Second, true)
		b.requireNext(t, 11*time.Second+periodWithEvents, true)
	})
}

// Whoever fails every half second must not put the list off for ever.
func TestRetriesInARowDoNotPutTheListOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, answers, instrument.Registry{})
		b.follow(t)
		b.pass(10 * time.Second)
		b.lister.Retry()
		b.pass(10*time.Second + 500*time.Millisecond)
		b.lister.Retry()
		b.requireNext(t, 11*time.Second, true)
		b.pass(11*time.Second + periodWithEvents - 500*time.Millisecond)
		b.lister.Retry()
		b.requireNext(t, 11*time.Second+periodWithEvents, true)
	})
}

func TestHealthyWithEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) {
			if away.Load() {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		require := func(after time.Duration, want string) {
			t.Helper()
			b.pass(after)
			ok, err := b.lister.Healthy()
			if ok != (want == "") || (err == nil) != ok || !ok && !strings.Contains(err.Error(), want) {
				t.Errorf("after %v: Healthy = %v, %v, want %q", after, ok, err, want)
			}
		}
		b.follow(t)
		require(0, "")
		away.Store(true)
		require(threshold+time.Minute, "") // the next list is not due yet
		require(thresholdWithEvents, "")
		require(thresholdWithEvents+time.Second, "last seen active 10m1s ago; threshold is 10m0s: list pods: "+errList.Error())
	})
}

// A stream that ends leaves the lists as long as without one, but not one that
// ends again and again.
func TestHealthyWhenTheStreamBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) {
			if away.Load() {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		b.follow(t)
		away.Store(true)
		broke := 4 * time.Minute
		b.pass(broke)
		b.lister.SetStream(false)
		b.pass(broke + threshold)
		if ok, err := b.lister.Healthy(); !ok {
			t.Errorf("a threshold after the stream broke: %v", err)
		}
		b.pass(broke + threshold + time.Second)
		if ok, _ := b.lister.Healthy(); ok {
			t.Error("healthy longer than a threshold after the stream broke")
		}
		for range 5 {
			b.lister.SetStream(true)
			time.Sleep(time.Minute)
			b.lister.SetStream(false)
		}
		if ok, _ := b.lister.Healthy(); ok {
			t.Errorf("healthy %v after the last good list, because the stream broke a moment ago", time.Since(b.start))
		}
	})
}

func TestDoubtedStreamIsAsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) {
			if away.Load() {
				return nil, errList
			}
			return nil, nil
		}, instrument.Registry{})
		b.follow(t)
		b.pass(10 * time.Second)
		b.lister.SetDoubt(true)
		b.requireNext(t, 11*time.Second, true)
		b.lister.SetDoubt(true)
		b.requireNext(t, 12*time.Second, true)
		b.lister.SetDoubt(false)
		b.requireNext(t, 13*time.Second, true) // was due already
		b.pass(2 * time.Minute)
		b.requireNext(t, 13*time.Second+periodWithEvents, true)

		away.Store(true)
		doubted := 13*time.Second + periodWithEvents + 4*time.Minute
		b.pass(doubted)
		b.lister.SetDoubt(true)
		b.pass(doubted + threshold)
		if ok, err := b.lister.Healthy(); !ok {
			t.Errorf("a threshold after the stream was doubted: %v", err)
		}
		b.pass(doubted + threshold + time.Second)
		if ok, _ := b.lister.Healthy(); ok {
			t.Error("healthy longer than a threshold after the stream was doubted")
		}
	})
}

func TestUnhealthyBeforeTheFirstList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, func(context.Context) ([]*pleg.Pod, error) { return nil, errList }, instrument.Registry{})
		synctest.Wait()
		if ok, err := b.lister.Healthy(); ok || !strings.Contains(err.Error(), "yet to be successful: list pods: "+errList.Error()) {
			t.Errorf("Healthy = %v, %v", ok, err)
		}
	})
}
