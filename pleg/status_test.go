package pleg_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The status that comes with an error is nil.
func TestNilStatusHasNothing(t *testing.T) {
	var none *pleg.PodStatus
	if none.Container("c") != nil || none.Sandbox("s") != nil || none.SandboxReady() {
		t.Error("a nil status has a container or a sandbox")
	}
}
