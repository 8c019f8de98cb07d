package hinter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/hinter"
)

func TestIncompleteCRIEventRelistsThePod(t *testing.T) {
	for name, breakHint := range map[string]func(*pleg.Hint){
		"no statuses":    func(h *pleg.Hint) { h.Pod = nil },
		"no time":        func(h *pleg.Hint) { h.At = time.Time{} },
		"in the future":  func(h *pleg.Hint) { h.At = h.At.Add(time.Hour) },
		"state unknown":  func(h *pleg.Hint) { h.Pod, h.State = nil, pleg.StateUnknown },
		"removed, empty": func(h *pleg.Hint) { h.Pod, h.Removed = nil, true },
	} {
		t.Run(name, func(t *testing.T) {
			testHinter(t, nil, func(f *fixture) {
				f.announce("a", breakHint)
				f.requireObserved(0, "a a") // the announcement and the list
				f.requireCalls(1, 0)
			})
		})
	}
	testHinter(t, nil, func(f *fixture) {
		f.announce("", nil)
		f.requireObserved(0, "")
		f.requireCalls(0, 1)
	})
}

func TestManyCRIEventsAreBounded(t *testing.T) {
	testHinter(t, nil, func(f *fixture) {
		f.slow()
		for n := range 20_000 { // the hinter reads the stream before any observation is received
			f.announce(pleg.PodUID(fmt.Sprint(n)), nil)
		}
		synctest.Wait()
		if f.lister.relists.Load() == 0 {
			t.Error("no relist was requested for the excess CRI events")
		}
		if got := len(f.observations()); got > 5000 {
			t.Errorf("%d observations, want at most 5000", got)
		}
	})
}

// A stream that worked is reopened at once, however long the runtime was away before.
func TestBrokenStreamIsReopenedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const broken = 100
		f := newFixture(t, nil)
		tries := make(chan time.Time, broken+1)
		f.runtime.SetWatchFault(func(context.Context) error {
			if tries <- time.Now(); len(tries) <= broken {
				return errUnavailable
			}
			f.runtime.SetWatchFault(nil)
			return nil
		})
		f.run()
		f.requireStream(time.Second, false)
		if n := len(tries); n < 3 || n > 8 {
			t.Errorf("%d tries in the first second, want a few", n)
		}
		f.requireStream(time.Hour, true)
		last := <-tries
		for n := 1; n <= broken; n++ {
			at := <-tries
			if wait := at.Sub(last); n >= 10 && (wait < 5*time.Second || wait > 10*time.Second) {
				t.Fatalf("waited %v before try %d, want 5 to 10 s", wait, n)
			}
			last = at
		}
		f.runtime.EndWatches(errUnavailable)
		f.requireStream(0, false)
		f.requireStream(100*time.Millisecond, true)
	})
}

func TestRuntimeWithoutEvents(t *testing.T) {
	const wait = 5 * time.Minute
	without := fmt.Errorf("receive: %w", pleg.ErrNoEvents)
	testHinter(t, nil, func(f *fixture) {
		f.requireStream(0, true)
		for range 2 {
			f.runtime.EndWatches(without)
			f.requireStream(wait-1, false)
			f.requireStream(time.Nanosecond, true)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, func(o *hinter.Options) { o.Required = true })
		f.runtime.SetWatchFault(func(context.Context) error { return without })
		if err := f.Run(t.Context(), f.out); !errors.Is(err, pleg.ErrNoEvents) {
			t.Errorf("Run = %v, want %v", err, pleg.ErrNoEvents)
		}
	})
}
