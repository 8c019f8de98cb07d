package cri_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// heavy runs pods whose annotations make the list of sandboxes larger than the runtime
// may send, as about 70 pods with 256 KiB do with containerd.
func heavy(t *testing.T, reg *prometheus.Registry, opts simruntime.Options, pods, limit int) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	opts.Seed, opts.MaxMessageBytes = 7, limit
	rt, client := simulatedWith(t, opts, cri.Options{Registerer: reg})
	for i := range pods {
		addHeavy(t, rt, fmt.Sprint("heavy-", i))
	}
	return rt, client
}

func addHeavy(t *testing.T, rt *simruntime.Runtime, name string) simruntime.Pod {
	t.Helper()
	p, err := rt.AddPod(simruntime.PodSpec{
		Name: name, UID: name, Namespace: "default",
		Annotations: map[string]string{"blob": strings.Repeat("x", 4<<10)},
		Containers:  []simruntime.ContainerSpec{{Name: "main"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTooLargeListIsListedInPortions has a list that is too large as a whole, and one
// of which a state is too large, and requires the runtime's state for both.
func TestTooLargeListIsListedInPortions(t *testing.T) {
	for name, limit := range map[string]int{"a state fits": 36 << 10, "no state fits": 16 << 10} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewPedanticRegistry()
				rt, client := heavy(t, reg, simruntime.Options{}, 12, limit)
				for i, p := range rt.Pods() {
					if i%2 == 0 {
						if err := rt.StopSandbox(p.Sandboxes[0].ID); err != nil {
							t.Fatal(err)
						}
					}
				}
				check := func(step string) {
					t.Helper()
					pods, err := client.ListPods(t.Context())
					if err != nil {
						t.Fatalf("%s: %v", step, err)
					}
					if got, want := show(plain(pods)), show(truth(rt.Pods())); got != want {
						t.Fatalf("%s: got\n%swant\n%s", step, got, want)
					}
					if err := client.Degraded(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "portions") {
						t.Errorf("%s: degraded: %v, want ResourceExhausted and that the lists are portioned", step, err)
					}
				}
				check("at first")
				if err := rt.RemovePod("heavy-3"); err != nil {
					t.Fatal(err)
				}
				addHeavy(t, rt, "heavy-new")
				check("a pod gone and a new one")
				rt.Burst(3, simruntime.Restart)
				check("restarts")
				rt.ResetStats()
				check("remembered")
				if n := rt.Stats().RPCs["StreamPodSandboxes"].Calls; n != 0 {
					t.Errorf("the whole list was tried %d times more, want it put off", n)
				}
				wantPortioned(t, reg, 1)
				for i := range 11 { // the node shrinks
					_ = rt.RemovePod(fmt.Sprint("heavy-", i)) // one is gone already
				}
				time.Sleep(5 * time.Minute)
				if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != 2 || client.Degraded() != nil {
					t.Errorf("once it fits again: %d pods, %v, degraded: %v; want 2", len(pods), err, client.Degraded())
				}
				wantPortioned(t, reg, 0)
			})
		})
	}
}

// TestSandboxSeenElsewhereIsInPortions has a sandbox without a container, whose id no
// list contains. If an event or a single-pod list has shown it, the next list of all
// must have it, or the pod would count as gone.
func TestSandboxSeenElsewhereIsInPortions(t *testing.T) {
	for name, show := range map[string]func(*testing.T, *cri.Client, *watch){
		"by an event": func(_ *testing.T, _ *cri.Client, w *watch) { <-w.hints },
		"by a list of one pod": func(t *testing.T, client *cri.Client, _ *watch) {
			if p, err := client.ListPod(t.Context(), "bare"); err != nil || p == nil {
				t.Fatalf("list of one pod: %v, %v", p, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, client := heavy(t, prometheus.NewRegistry(), simruntime.Options{}, 12, 16<<10)
				w := &watch{}
				if name == "by an event" {
					w = watchEvents(t, client)
					<-w.opened
				}
				if _, err := client.ListPods(t.Context()); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if _, err := rt.AddPod(simruntime.PodSpec{Name: "bare", UID: "bare", Namespace: "default"}); err != nil {
					t.Fatal(err)
				}
				show(t, client, w)
				for range 3 {
					if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != 13 {
						t.Errorf("%d pods, %v; want 13", len(pods), err)
					}
				}
				if err := rt.RemovePod("bare"); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != 12 {
						t.Errorf("after the removal %d pods, %v; want 12", len(pods), err)
					}
				}
			})
		})
	}
}

func wantPortioned(t *testing.T, reg *prometheus.Registry, want int) {
	t.Helper()
	text := fmt.Sprintf("# HELP pleg_portioned_lists 1 while sandboxes are listed in portions because the whole list is too large to send, 0 otherwise.\n"+
		"# TYPE pleg_portioned_lists gauge\npleg_portioned_lists %d\n", want)
	if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "pleg_portioned_lists"); err != nil {
		t.Error(err)
	}
}

// A list without one of its portions is wrong, so ListPods returns an error.
func TestFailedPortionFailsList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := heavy(t, prometheus.NewRegistry(), simruntime.Options{}, 12, 16<<10)
		if _, err := rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", PodUID: "heavy-7", Code: codes.Internal, Times: 1}); err != nil {
			t.Fatal(err)
		}
		if pods, err := client.ListPods(t.Context()); pods != nil || err == nil || !strings.Contains(err.Error(), "injected fault") {
			t.Errorf("got %d pods, %v; want the error of the portion", len(pods), err)
		}
		if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != 12 {
			t.Errorf("then %d pods, %v; want 12", len(pods), err)
		}
	})
}

// TestSandboxInTwoPortionsCountsOnce has a sandbox stop between the list of
// those that are ready and that of the others: the portions overlap.
func TestSandboxInTwoPortionsCountsOnce(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	client := connect(t, &overlapping{fakeRuntime: *lists(nil, nil)}, cri.Options{Registerer: reg})
	pods, err := client.ListPods(t.Context())
	if err != nil || len(pods) != 1 || len(pods[0].Sandboxes) != 1 {
		t.Errorf("got %s, %v; want one sandbox", show(pods), err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "pleg_malformed_items_total" && m.GetCounter().GetValue() > 0 {
				t.Errorf("counted as malformed: %v", m)
			}
		}
	}
}

// overlapping lists its only sandbox in each state.
type overlapping struct{ fakeRuntime }

func (*overlapping) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if req.GetFilter() == nil {
		return nil, status.Error(codes.ResourceExhausted, "too large")
	}
	s := sandbox("s1", "u1", req.GetFilter().GetState().GetState(), 1)
	return &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{s}}, nil
}
