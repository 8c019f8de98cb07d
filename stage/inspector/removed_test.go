package inspector_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each step is an inspection of the pod, and whether the final status of c is kept after it.
func TestFinalStatusesOfRemovedContainersAreKept(t *testing.T) {
	type step struct {
		words string
		kept  bool
	}
	const gone, fails = "gone", "fails"
	for name, steps := range map[string][]step{
		"removed after it exited":            {{"c=exited d=running", false}, {"d=running", true}},
		"removed while running":              {{"c=running d=running", false}, {"d=running", false}},
		"removed with its pod":               {{"c=exited d=running", false}, {gone, true}},
		"removed before a failed inspection": {{"c=exited d=running", false}, {fails, false}, {"d=running", true}},
		"never inspected":                    {{gone, false}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			for n, s := range steps {
				switch s.words {
				case fails:
					f.runtime.SetInspectFault(plegtest.Fail(errInspect))
					f.do(change(n, plegtest.Pod("a", "d=running")))
					f.runtime.SetInspectFault(nil)
				case gone:
					f.gone <- stage.Change{UID: "a", At: at(n)}
					<-f.settled
				default:
					f.do(change(n, plegtest.Pod("a", s.words)))
				}
				if got := f.cache.GetRemoved("c"); (got != nil) != s.kept || got != nil && got.ExitCode != 3 {
					t.Errorf("step %d: kept %+v, want the final status: %v", n, got, s.kept)
				}
				if got := f.cache.GetRemoved("d"); got != nil {
					t.Errorf("step %d: kept %+v of a container that ran", n, got)
				}
			}
		})
	}
}
