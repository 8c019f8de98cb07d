package client

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// DivideLimits makes the limits of a list smaller until the test ends.
func DivideLimits(t *testing.T, by int) {
	t.Helper()
	before := limits
	t.Cleanup(func() { limits = before })
	limits.pods, limits.bytes = limits.pods/by, limits.bytes/by
}

// AnOlderServerKnowsLess makes the client ask every server whether it knows the fields of a request after
// this number, until the test ends.
func AnOlderServerKnowsLess(t *testing.T, last int) {
	t.Helper()
	before := everyServer
	t.Cleanup(func() { everyServer = before })
	everyServer = protoreflect.FieldNumber(last)
}
