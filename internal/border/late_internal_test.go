package border

import (
	"testing"
	"testing/synctest"
	"time"
)

// A process that gets no CPU does not blame the runtime.
func TestLate(t *testing.T) {
	for _, tt := range []struct {
		took, wait time.Duration
		want       bool
	}{
		{0, 0, false},
		{reportWithin, reportWithin, false},
		{2 * reportWithin, reportWithin, false},
		{3 * reportWithin, reportWithin, true},
		{2 * reportWithin, 0, true}, // of a call that is abandoned
		{grace + grace/4, grace, false},
		{2 * grace, grace, true},
	} {
		if got := late(tt.took, tt.wait); got != tt.want {
			t.Errorf("a wait of %v that took %v: late %t, want %t", tt.wait, tt.took, got, tt.want)
		}
	}
}

// A process that gets CPU for a moment of each tenth of a second is late, and a process with CPU is not.
func TestLateWithALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, wait := range []time.Duration{reportWithin, grace} {
			began := time.Now()
			limited := func(d time.Duration) <-chan time.Time { // the process runs at the next period
				const period = 100 * time.Millisecond
				at := (time.Since(began) + d + period - 1) / period * period
				return time.After(at - time.Since(began))
			}
			for after, want := range map[*func(time.Duration) <-chan time.Time]bool{new(limited): true, new(time.After): false} {
				if _, returned, took := await[int](nil, wait, *after); returned || late(took, wait) != want {
					t.Errorf("a wait of %v took %v: late %t, want %t", wait, took, !want, want)
				}
			}
		}
	})
}
