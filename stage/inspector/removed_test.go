package inspector_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

// Each step is an inspection of the pod, and what is kept of removed containers
// after it.
func TestFinalStatusesOfRemovedContainersAreKept(t *testing.T) {
	type step struct{ words, want string }
	const gone, fails = "gone", "fails"
	for name, steps := range map[string][]step{
		"removed after its end":             {{"c=exited d=running", ""}, {"d=running", "c"}, {"d=running", ""}},
		"removed while it ran, as far seen": {{"c=running d=running", ""}, {"d=running", ""}},
		"with its pod":                      {{"c=exited d=running", ""}, {gone, "c"}},
		"over a failed inspection":          {{"c=exited d=running", ""}, {fails, ""}, {"d=running", "c"}},
		"never inspected":                   {{gone, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failing := false
				b := newBed(t, func(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
					if failing {
						return nil, errInspect
					}
					return plegtest.Status(pod), nil
				}, inspector.Options{})
				for n, s := range steps {
					if failing = s.words == fails; s.words == gone {
						b.known <- stage.Change{UID: "a", At: at(n)}
						<-b.settled
					} else {
						b.do(change(n, plegtest.Pod("a", map[bool]string{true: "d=running", false: s.words}[failing])))
					}
					got := ""
					for _, status := range b.cache.keptRemoved() {
						got += string(status.ID)
						if status.ExitCode != 3 {
							t.Errorf("step %d: kept %+v, want the final status", n, status)
						}
					}
					if got != s.want {
						t.Errorf("step %d: kept %q, want %q", n, got, s.want)
					}
				}
			})
		})
	}
}

func TestEventDoesNotHoldTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, asListed, inspector.Options{})
		_, o, _ := b.do(change(1, plegtest.Pod("a", "c=exited")))
		if o.Events[0].ExitCode == &o.Status.Containers[0].ExitCode {
			t.Error("the exit code is a pointer into the status")
		}
	})
}
