package doctor

import (
	"strings"
	"testing"
)

// Root gets no advice to become root.
func TestAllowed(t *testing.T) {
	for uid, sudo := range map[int]bool{0: false, 1000: true} {
		if advice := allowed(uid); strings.Contains(advice, "sudo") != sudo {
			t.Errorf("user %d: %q", uid, advice)
		}
	}
}
