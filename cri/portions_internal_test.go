package cri

import (
	"strconv"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// While lists fail, a flood of events of unknown sandboxes fills no memory.
func TestSeenSandboxesAreBounded(t *testing.T) {
	var s seenSandboxes
	next := 0
	flood := func() {
		for range 2 * maxSeen {
			next++
			s.add(pleg.ContainerID(strconv.Itoa(next)))
		}
	}
	flood()
	for range 3 {
		drained := s.drain()
		if len(drained) != maxSeen {
			t.Fatalf("%d sandboxes are remembered, want %d", len(drained), maxSeen)
		}
		flood() // during a list that then fails
		for id := range drained {
			s.add(id)
		}
	}
}
