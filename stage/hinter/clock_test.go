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

// made plays a stream of one event, made that long from now.
func made(fromNow time.Duration) *fakeEvents {
	return &fakeEvents{streams: []func(context.Context, func(), func(pleg.Hint)) error{
		func(ctx context.Context, _ func(), hint func(pleg.Hint)) error {
			h := whole("a")
			h.At = time.Now().Add(fromNow).Round(0) // as it comes over the wire
			hint(h)
			<-ctx.Done()
			return context.Cause(ctx)
		},
	}}
}

func TestNoEventIsNewerThanItsArrival(t *testing.T) {
	for name, tc := range map[string]struct{ made, want time.Duration }{
		"made a moment ago":  {-300 * time.Millisecond, -300 * time.Millisecond},
		"made long ago":      {-time.Hour, -time.Hour},
		"at the very time":   {},
		"ahead of the clock": {300 * time.Millisecond, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := run(t, &fakePods{}, made(tc.made), nil)
				if got := time.Until((<-f.out).At); got != tc.want {
					t.Errorf("observed %v from now, want %v", got, tc.want)
				}
			})
		})
	}
}

// The wall clock may be set back: an event from before that would overrule every
// listing until the clock is there again. Bubbles have only a wall clock.
func TestEventsAreOrderedByTheMonotonicClock(t *testing.T) {
	f := run(t, &fakePods{}, made(-time.Millisecond), nil)
	if at := (<-f.out).At; !strings.Contains(at.String(), " m=") {
		t.Errorf("observed at %v, want a reading of the monotonic clock", at)
	}
	f.stop()
	if err := <-f.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Run ended with %v, want context.Canceled", err)
	}
}
