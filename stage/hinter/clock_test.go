package hinter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// announceAt sends a CRI event that was made at this time from now, by the clock of a message.
func (f *fixture) announceAt(fromNow, asOf time.Duration) {
	f.announce("a", func(h *pleg.Hint) {
		h.At = h.At.Add(fromNow).Round(0) // without a monotonic clock
		if asOf != 0 {
			h.AsOf = h.At.Add(asOf)
		}
	})
}

// A CRI event is not newer than its arrival. Its statuses may be older than the event.
func TestCRIEventKeepsItsAge(t *testing.T) {
	for name, tc := range map[string]struct {
		made, asOf         time.Duration // asOf is relative to the event, 0 none
		wantMade, wantAsOf time.Duration // from now
	}{
		"made a moment ago":                       {-300 * time.Millisecond, 0, -300 * time.Millisecond, 0},
		"made long ago":                           {-time.Hour, 0, -time.Hour, 0},
		"made now":                                {},
		"ahead of the clock":                      {300 * time.Millisecond, 0, 0, 0},
		"older statuses":                          {-time.Second, -time.Minute, -time.Second, -time.Minute - time.Second},
		"older statuses, ahead of the clock":      {time.Second / 2, -time.Minute, 0, -time.Minute},
		"statuses newer than the event, nonsense": {-time.Second, time.Minute, -time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			testHinter(t, nil, func(f *fixture) {
				f.announceAt(tc.made, tc.asOf)
				o := <-f.out
				if got := time.Until(o.At); got != tc.wantMade {
					t.Errorf("observed %v from now, want %v", got, tc.wantMade)
				}
				if got := time.Until(o.AsOf); o.AsOf.IsZero() != (tc.wantAsOf == 0) || !o.AsOf.IsZero() && got != tc.wantAsOf {
					t.Errorf("shows everything as of %v from now, want %v", got, tc.wantAsOf)
				}
			})
		})
	}
}

// If the wall clock is set back, CRI events from before would be newer than every
// listing. This test has no bubble, because bubbles have no monotonic clock.
func TestCRIEventsAreOrderedByTheMonotonicClock(t *testing.T) {
	f := newFixture(t, nil)
	f.run()
	for !f.lister.open.Load() {
		time.Sleep(time.Millisecond)
	}
	f.announceAt(-time.Millisecond, 0)
	if at := (<-f.out).At; !strings.Contains(at.String(), " m=") {
		t.Errorf("observed at %v, want a reading of the monotonic clock", at)
	}
}
