package inspector_test

import (
	"strings"
	"testing"

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
			f := newFixture(t, nil, inspector.Options{})
			for n, step := range steps {
				pod := plegtest.Pod("a", step.words)
				f.runtime.SetStatus("a", plegtest.Status(pod, strings.Fields(step.ip)...))
				if f.runtime.SetInspectFault(nil); step.ip == fails {
					f.runtime.SetInspectFault(plegtest.Fail(errInspect))
				}
				f.do(change(n, pod))
				got := ""
				if s, err := f.cache.Get("a"); err == nil {
					got = strings.Join(s.IPs, " ")
				}
				if got != step.want {
					t.Errorf("step %d: addresses = %q, want %q", n, got, step.want)
				}
			}
		})
	}
}
