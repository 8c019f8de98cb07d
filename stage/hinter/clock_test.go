package hinter_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// eventMade returns a runtime that sends one CRI event, made at the given time
// from now.
func eventMade(fromNow time.Duration) *fakeEvents {
	return streamOf(func(hint func(pleg.Hint)) {
		h := newHint("a")
		h.At = time.Now().Add(fromNow).Round(0) // without a monotonic clock, as in a message
		hint(h)
	})
}

func TestCRIEventIsNotNewerThanItsArrival(t *testing.T) {
	for name, tc := range map[string]struct{ made, want time.Duration }{
		"made a moment ago":  {-300 * time.Millisecond, -300 * time.Millisecond},
		"made long ago":      {-time.Hour, -time.Hour},
		"made now":           {},
		"ahead of the clock": {300 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testHinter(t, &fakePods{}, eventMade(tc.made), func(f *fixture) {
				if got := time.Until((<-f.out).At); got != tc.want {
					t.Errorf("observed %v from now, want %v", got, tc.want)
				}
			})
		})
	}
}

// The statuses of an event may be older than the event.
func TestStatusesKeepTheirAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := run(t, &fakePods{}, streamOf(func(hint func(pleg.Hint)) {
			h := newHint("a")
			h.At = h.At.Add(-time.Second).Round(0)
			hint(h)
			h.AsOf = h.At.Add(-time.Minute)
			hint(h)
			h.AsOf = h.At.Add(time.Minute) // nonsense
			hint(h)
			h.At = time.Now().Add(time.Second / 2).Round(0) // by a clock that is ahead
			h.AsOf = h.At.Add(-time.Minute)
			hint(h)
		}), nil)
		for n, want := range []time.Duration{0, -time.Minute - time.Second, 0, -time.Minute} {
			o := <-f.out
			if got := time.Until(o.AsOf); want == 0 && !o.AsOf.IsZero() || want != 0 && got != want {
				t.Errorf("event %d shows everything as of %v from now, want %v", n, got, want)
			}
		}
	})
}

// If the wall clock is set back, CRI events from before would be newer than every
// listing. This test has no bubble, because bubbles have no monotonic clock.
func TestCRIEventsAreOrderedByTheMonotonicClock(t *testing.T) {
	f := run(t, &fakePods{}, eventMade(-time.Millisecond), nil)
	if at := (<-f.out).At; !strings.Contains(at.String(), " m=") {
		t.Errorf("observed at %v, want a reading of the monotonic clock", at)
	}
	f.stop()
	if err := <-f.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v, want context.Canceled", err)
	}
}
