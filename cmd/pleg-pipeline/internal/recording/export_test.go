package recording

import "testing"

// DivideLimits makes the limits of recordings smaller until the test ends.
func DivideLimits(t *testing.T, by int) {
	t.Helper()
	before := limits
	t.Cleanup(func() { limits = before })
	limits.bytes, limits.fields, limits.items = limits.bytes/by, limits.fields/by, limits.items/by
}
