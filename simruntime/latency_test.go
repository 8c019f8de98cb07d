package simruntime_test

import (
	"slices"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestProfileDelaysCalls(t *testing.T) {
	node, err := simruntime.NewProfile(simruntime.ProfileNode)
	kit.Must(t, err)
	opts := simruntime.Options{Profile: node}
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
		kit.Must(t, rt.SetProfile(nil))
		if _, took := statusOf(t.Context(), client, p.Containers[0].ID); took != 0 {
			t.Errorf("without a profile a call took %v", took)
		}
	})
}

func TestTailProfileHasHeavyTail(t *testing.T) {
	tail, err := simruntime.NewProfile(simruntime.ProfileTail)
	kit.Must(t, err)
	opts := simruntime.Options{Profile: tail, Seed: 7}
	simulate(t, opts, func(t *testing.T, rt *simruntime.Runtime, client cri.RuntimeServiceClient) {
		p := populate(t, rt, 1, 1)[0]
		const n = 1000
		times := make([]time.Duration, n)
		for i := range times {
			_, times[i] = statusOf(t.Context(), client, p.Containers[0].ID)
		}
		slices.Sort(times)
		p50, p99 := times[n/2], times[n*99/100]
		if p50 < 10*ms || p50 > 14*ms || p99 < 160*ms || p99 > 400*ms {
			t.Errorf("p50 %v, p99 %v; want about 12ms and 240ms", p50, p99)
		}
	})
}
