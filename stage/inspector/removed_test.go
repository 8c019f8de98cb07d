package inspector_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
)

// Each step is an inspection of the pod and the removed containers whose status is
// kept after it.
func TestFinalStatusesOfRemovedContainersAreKept(t *testing.T) {
	type step struct{ words, want string }
	const gone, fails = "gone", "fails"
	for name, steps := range map[string][]step{
		"removed after it exited":            {{"c=exited d=running", ""}, {"d=running", "c"}, {"d=running", ""}},
		"removed while running":              {{"c=running d=running", ""}, {"d=running", ""}},
		"removed with its pod":               {{"c=exited d=running", ""}, {gone, "c"}},
		"removed before a failed inspection": {{"c=exited d=running", ""}, {fails, ""}, {"d=running", "c"}},
		"never inspected":                    {{gone, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failing := false
				f := newFixture(t, faulty(func(context.Context) error {
					if failing {
						return errInspect
					}
					return nil
				}), inspector.Options{})
				for n, s := range steps {
					switch failing = s.words == fails; {
					case failing:
						f.do(change(n, plegtest.Pod("a", "d=running")))
					case s.words == gone:
						f.known <- stage.Change{UID: "a", At: at(n)}
						<-f.settled
					default:
						f.do(change(n, plegtest.Pod("a", s.words)))
					}
					got := ""
					for _, status := range f.cache.keptRemoved() {
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

// The status of a CRI event is not the inspector's to change.
func TestStatusOfAnEventIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, asListed, inspector.Options{})
		c := change(1, plegtest.Pod("a", "c=running"))
		c.Status = plegtest.Status(plegtest.Pod("a", "other=running c=running"))
		want := slices.Clone(c.Status.Containers)
		f.known <- c
		<-f.settled
		if o := <-f.outcomes; len(o.Status.Containers) != 1 || o.Status.Containers[0].ID != "c" {
			t.Errorf("status %+v, want only what was observed", o.Status)
		}
		if !slices.Equal(c.Status.Containers, want) {
			t.Errorf("the event's status has %v now, want %v", c.Status.Containers, want)
		}
	})
}
