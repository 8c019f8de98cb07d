package pleg_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// A pod runs while one of its containers or sandboxes runs.
func TestRunning(t *testing.T) {
	for words, want := range map[string]bool{"": false, "c=exited /s=exited": false, "c=running /s=exited": true, "c=created /s=running": true} {
		if got := plegtest.Pod("a", words).Running(); got != want {
			t.Errorf("%q runs: %t, want %t", words, got, want)
		}
	}
}

// The status that comes with an error is nil.
func TestNilStatusHasNothing(t *testing.T) {
	var none *pleg.PodStatus
	if none.Container("c") != nil || none.Sandbox("s") != nil || none.SandboxReady() {
		t.Error("a nil status has a container or a sandbox")
	}
}
