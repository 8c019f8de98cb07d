package border

import (
	"testing"
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
