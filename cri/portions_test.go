package cri_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// heavy runs pods whose annotations make the list of sandboxes larger than the runtime
// may send, as about 70 pods with 256 KiB do with containerd.
func heavy(t *testing.T, reg *prometheus.Registry, opts simruntime.Options, pods, limit int) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	opts.Seed, opts.MaxMessageBytes = 7, limit
	rt, m := simulation(t, opts)
	for i := range pods {
		addHeavy(t, rt, fmt.Sprint("heavy-", i))
	}
	return rt, clientOf(t, m, cri.Options{Registerer: reg})
}

func addHeavy(t *testing.T, rt *simruntime.Runtime, name string) simruntime.Pod {
	t.Helper()
	p, err := rt.AddPod(simruntime.PodSpec{
		Name: name, UID: name, Namespace: "default",
		Annotations: map[string]string{"blob": strings.Repeat("x", 4<<10)},
		Containers:  []simruntime.ContainerSpec{{Name: "main"}},
	})
	must(t, err)
	return p
}

// TestTooLargeListIsListedInPortions has a list that is too large as a whole, and a list in which
// the sandboxes of one state are too many, and requires the runtime's state for both.
func TestTooLargeListIsListedInPortions(t *testing.T) {
	for name, tt := range map[string]struct {
		limit int
		calls int64 // that list the sandboxes once the whole list has failed
	}{"a state fits": {36 << 10, 2}, "no state fits": {16 << 10, 14}} {
		kit.Bubble(t, name, func(t *testing.T) {
			reg := prometheus.NewPedanticRegistry()
			rt, client := heavy(t, reg, simruntime.Options{}, 12, tt.limit)
			for i, p := range rt.Pods() {
				if i%2 == 0 {
					must(t, rt.StopPod(p.UID))
				}
			}
			check := func(step string) {
				t.Helper()
				wantTruth(t, step, listPods(t, client), rt.Pods())
				if err := client.Report().Degraded; status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "portions") {
					t.Errorf("%s: degraded: %v, want ResourceExhausted and that the lists are portioned", step, err)
				}
			}
			check("at first")
			must(t, rt.RemovePod("heavy-3"))
			addHeavy(t, rt, "heavy-new")
			check("a pod gone and a new one")
			rt.Burst(3, simruntime.Restart)
			check("restarts")
			rt.ResetStats()
			check("remembered")
			if n := rt.Stats().RPCs["ListPodSandbox"].Calls; n != tt.calls {
				t.Errorf("%d lists of sandboxes, want %d: the whole list is put off", n, tt.calls)
			}
			for i := range 11 { // the node shrinks
				_ = rt.RemovePod(fmt.Sprint("heavy-", i)) // one is gone already
			}
			time.Sleep(5 * time.Minute)
			wantPods(t, client, 2)
			if err := client.Report().Degraded; err != nil {
				t.Errorf("once it fits again, degraded: %v", err)
			}
		})
	}
}

// TestSandboxSeenElsewhereIsInPortions has a sandbox without a container, whose id no
// list contains. If a single-pod list has shown it, the next list of all must have it, or the
// pod would count as gone.
func TestSandboxSeenElsewhereIsInPortions(t *testing.T) {
	listBare := func(t *testing.T, client *cri.Client) {
		if p, err := client.ListPod(t.Context(), "bare"); err != nil || p == nil {
			t.Fatalf("list of one pod: %v, %v", p, err)
		}
	}
	failOnce := func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, pod string, add func()) {
		add()
		listBare(t, client)
		inject(t, rt, simruntime.Fault{RPC: "ListPodSandbox", PodUID: pod, Code: codes.Internal, Times: 1})
		if pods, err := client.ListPods(t.Context()); pods != nil || err == nil || !strings.Contains(err.Error(), "injected fault") {
			t.Errorf("got %d pods, %v; want the error of the list", len(pods), err)
		}
	}
	for name, see := range map[string]func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, add func()){
		"by a list of one pod": func(t *testing.T, _ *simruntime.Runtime, client *cri.Client, add func()) {
			add()
			listBare(t, client)
		},
		// A list without one of its portions is wrong.
		"before a list of which a portion fails": func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, add func()) {
			failOnce(t, rt, client, "heavy-7", add)
		},
		"before a list that fails": func(t *testing.T, rt *simruntime.Runtime, client *cri.Client, add func()) {
			failOnce(t, rt, client, "", add)
		},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			rt, client := heavy(t, prometheus.NewRegistry(), simruntime.Options{}, 12, 16<<10)
			wantPods(t, client, 12)
			synctest.Wait()
			see(t, rt, client, func() {
				_, err := rt.AddPod(simruntime.PodSpec{Name: "bare", UID: "bare", Namespace: "default"})
				must(t, err)
			})
			for range 3 {
				wantPods(t, client, 13)
			}
			must(t, rt.RemovePod("bare"))
			for range 2 {
				wantPods(t, client, 12)
			}
		})
	}
}

// A sandbox that has become too large to be listed even alone still exists: it stays as
// it was in the list before.
func TestSandboxTooLargeAloneStays(t *testing.T) {
	rt := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1), sandbox("s2", "u2", 0, 1)}}
	var large atomic.Bool
	rt.Before = func(_ context.Context, request any) error {
		if list, ok := request.(*runtimeapi.ListPodSandboxRequest); ok && large.Load() && list.GetFilter().GetId() != "s2" {
			return status.Error(codes.ResourceExhausted, "too large")
		}
		return nil
	}
	client := connect(t, rt, cri.Options{})
	before := show(listPods(t, client))
	large.Store(true)
	wantList(t, client, before)
	wantList(t, client, before)
}

// TestSandboxInTwoPortionsCountsOnce has a sandbox stop between the list of ready sandboxes and the
// list of the others: the portions overlap.
func TestSandboxInTwoPortionsCountsOnce(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	rt := &rawruntime.Runtime{}
	rt.Before = func(_ context.Context, request any) error {
		list, ok := request.(*runtimeapi.ListPodSandboxRequest)
		switch {
		case ok && list.GetFilter() == nil:
			return status.Error(codes.ResourceExhausted, "too large")
		case ok:
			rt.Sandboxes = []*runtimeapi.PodSandbox{sandbox("s1", "u1", list.GetFilter().GetState().GetState(), 1)}
		}
		return nil
	}
	client := connect(t, rt, cri.Options{Registerer: reg})
	pods, err := client.ListPods(t.Context())
	if err != nil || len(pods) != 1 || len(pods[0].Sandboxes) != 1 {
		t.Errorf("got %s, %v; want one sandbox", show(pods), err)
	}
	kit.RequireMetric(t, reg, 0, "pleg_malformed_items_total")
}
