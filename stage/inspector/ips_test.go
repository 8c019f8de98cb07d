package inspector_test

import (
	"context"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Each step is an inspection: the pod, the address that the runtime returns (or
// "fails"), and the address in the cache.
func TestAddresses(t *testing.T) {
	type step struct{ words, ip, want string }
	const fails = "fails"
	for name, steps := range map[string][]step{
		"kept if the sandbox is not ready": {
			{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/s=exited", "", "10.0.0.1"}, {"/s=exited", "", "10.0.0.1"},
		},
		"kept without a sandbox":                       {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"c=exited", "", "10.0.0.1"}},
		"kept after a failed inspection":               {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/s=exited", fails, ""}, {"/s=exited", "", "10.0.0.1"}},
		"dropped if a sandbox without one is ready":    {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/t=running /s=exited", "", ""}, {"/s=exited", "", ""}},
		"replaced by the address of a new sandbox":     {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/t=running /s=exited", "10.0.0.2", "10.0.0.2"}},
		"replaced by the address of an exited sandbox": {{"/s=running", "10.0.0.1", "10.0.0.1"}, {"/s=exited", "10.0.0.3", "10.0.0.3"}},
		"none": {{"/s=running", "", ""}, {"/s=exited", "", ""}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			n := 0
			f := newFixture(t, func(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
				switch ip := steps[n].ip; ip {
				case fails:
					return nil, errInspect
				case "":
					return plegtest.Status(pod), nil
				default:
					return plegtest.Status(pod, ip), nil
				}
			}, inspector.Options{})
			for n = range steps {
				f.do(change(n, plegtest.Pod("a", steps[n].words)))
				got := ""
				if s, err := f.cache.Get("a"); err == nil {
					got = strings.Join(s.IPs, " ")
				}
				if got != steps[n].want {
					t.Errorf("step %d: addresses = %q, want %q", n, got, steps[n].want)
				}
			}
		})
	}
}
