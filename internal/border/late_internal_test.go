package border

import (
	"fmt"
	"log/slog"
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

// A call that has just returned is not counted as abandoned.
func TestReturnedCallIsNotAbandoned(t *testing.T) {
	c := calls{log: slog.New(slog.DiscardHandler), inFlight: make(map[subject]*inFlight)}
	of := subject{"PodStatus", "a"}
	call, _ := c.begin(of)
	c.end(of, call)
	if c.abandon(of, call); c.abandoned != 0 {
		t.Errorf("%d calls are abandoned", c.abandoned)
	}
}

// The names of three abandoned calls are enough.
func TestNamesOfAbandonedCalls(t *testing.T) {
	for n, want := range []string{"<nil>", "M0 (0s)", "M0 (0s), M1 (0s)", "M0 (0s), M1 (0s), M2 (0s)", "M0 (0s), M1 (0s), M2 (0s), 1 more"} {
		r := Runtime{calls: calls{inFlight: map[subject]*inFlight{{method: "returns soon"}: {}}}}
		for i := range n {
			r.calls.inFlight[subject{method: fmt.Sprint("M", i)}] = &inFlight{began: time.Now(), abandoned: true}
		}
		if n > 0 {
			want = "calls of the runtime ignore their context and keep running: " + want
		}
		if err := r.Abandoned(); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A call that returns as the wait ends has returned.
func TestReturnsAtTheEnd(t *testing.T) {
	for range 50 { // select chooses at random
		returns := make(chan int, 1)
		both := func(time.Duration) <-chan time.Time {
			returns <- 7
			ended := make(chan time.Time)
			close(ended)
			return ended
		}
		if got, returned, _ := await(returns, 0, both); got != 7 || !returned {
			t.Fatalf("got %d, returned: %t", got, returned)
		}
	}
}
