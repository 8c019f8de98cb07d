package client

import "testing"

// DivideLimits makes the limits of a list smaller until the test ends.
func DivideLimits(t *testing.T, by int) {
	t.Helper()
	before := limits
	t.Cleanup(func() { limits = before })
	limits.pods, limits.bytes = limits.pods/by, limits.bytes/by
}
