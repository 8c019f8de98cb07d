package pleg_test

import (
	"errors"
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

// The error of an inspection has the text of its cause, and that of a call names the call too.
func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	for err, want := range map[error]string{
		&pleg.InspectionError{Err: broken}: "broken",
		&pleg.CallError{Call: pleg.Call{Method: "ContainerStatus", Container: "nginx", ID: "c1"}, Err: broken}: "ContainerStatus of nginx c1: broken",
		&pleg.CallError{Call: pleg.Call{Method: "PodSandboxStatus", PodUID: "a", ID: "s1"}, Err: broken}:       "PodSandboxStatus s1: broken",
	} {
		if err.Error() != want || !errors.Is(err, broken) {
			t.Errorf("%v of %v, want %s", err, errors.Unwrap(err), want)
		}
	}
}
