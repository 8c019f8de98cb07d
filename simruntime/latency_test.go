package simruntime_test

import (
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestProfileDelaysCalls(t *testing.T) {
	opts := simruntime.Options{Profile: simruntime.NodeProfile()}
	simulate(t, opts, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		p := populate(t, rt, 1, 1)[0]
		for name, tc := range map[string]struct {
			call func()
			want time.Duration
		}{
			"ContainerStatus":  {func() { containerStatus(t, client, p.Containers[0].ID) }, 12 * ms},
			"PodSandboxStatus": {func() { sandboxStatus(t, client, p.Sandboxes[0].ID) }, 5 * ms},
			"ListContainers":   {func() { listContainers(t, client) }, 30 * ms},
			"ListPodSandbox":   {func() { listPods(t, client) }, 18 * ms},
		} {
			began := time.Now()
			tc.call()
			if got := time.Since(began); got != tc.want {
				t.Errorf("%s took %v, want %v", name, got, tc.want)
			}
			if got := rt.Stats().RPCs[name]; got.Calls != 1 || got.Time != tc.want {
				t.Errorf("%s is counted as %+v", name, got)
			}
		}
		rt.SetProfile(nil)
		if _, took := statusOf(t.Context(), client, p.Containers[0].ID); took != 0 {
			t.Errorf("without a profile a call took %v", took)
		}
	})
}
