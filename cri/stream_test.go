package cri_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// batched serves rt in batches of three items and returns a client of it.
func batched(t *testing.T, pods int) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	rt, client := simulatedWith(t, simruntime.Options{Seed: 7, StreamBatch: 3}, cri.Options{})
	if _, err := rt.Populate(simruntime.Population{Pods: pods, Containers: 2}); err != nil {
		t.Fatal(err)
	}
	return rt, client
}

func TestBrokenListStreamIsDiscarded(t *testing.T) {
	for _, rpc := range []string{"StreamPodSandboxes", "StreamContainers"} {
		for _, messages := range []int{1, 2, 99} {
			t.Run(fmt.Sprintf("%s after %d", rpc, messages), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rt, client := batched(t, 7)
					before, err := client.ListPods(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					rt.Burst(2, simruntime.Restart)
					if _, err := rt.Inject(simruntime.Fault{RPC: rpc, Messages: messages, Times: 1, Code: codes.Unavailable}); err != nil {
						t.Fatal(err)
					}
					if pods, err := client.ListPods(t.Context()); pods != nil || status.Code(err) != codes.Unavailable {
						t.Errorf("the list that broke: %d pods, %v; want Unavailable", len(pods), err)
					}
					after, err := client.ListPods(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if got, want := show(plain(after)), show(truth(rt.Pods())); got != want {
						t.Errorf("after the break: got\n%swant\n%s", got, want)
					}
					if n := samePods(before, after); n != 5 {
						t.Errorf("%d pods are the same pointers, want the 5 that did not change", n)
					}
				})
			})
		}
	}
}

func plain(pods []*pleg.Pod) []*pleg.Pod {
	out := make([]*pleg.Pod, len(pods))
	for i, p := range pods {
		unlabelled := *p
		unlabelled.Labels = nil
		out[i] = &unlabelled
	}
	return out
}

func samePods(before, after []*pleg.Pod) (n int) {
	for _, p := range after {
		for _, q := range before {
			if p == q {
				n++
			}
		}
	}
	return n
}

func TestListStreamOfEmptyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := batched(t, 2)
		for _, want := range []int{2, 0, 0} {
			pods, err := client.ListPods(t.Context())
			if err != nil || len(pods) != want {
				t.Errorf("got %d pods, %v; want %d", len(pods), err, want)
			}
			rt.Burst(2, simruntime.Remove)
		}
	})
}

// A runtime that stops answering in the middle of a list costs that list only.
func TestStalledListStreamEndsAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := batched(t, 7)
		if _, err := rt.Inject(simruntime.Fault{RPC: "StreamContainers", Messages: 1, Times: 1, Hang: true}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := client.ListPods(t.Context()); status.Code(err) != codes.DeadlineExceeded || time.Since(start) != cri.DefaultTimeout {
			t.Errorf("ended after %v with %v, want 2m0s and DeadlineExceeded", time.Since(start), err)
		}
		if pods, err := client.ListPods(t.Context()); err != nil || len(pods) != 7 {
			t.Errorf("then: %d pods, %v; want 7", len(pods), err)
		}
	})
}

// switching is a runtime that has streams or not, and counts who asks for them.
type switching struct {
	fakeRuntime
	streams bool
	asked   atomic.Int64
}

func (s *switching) StreamPodSandboxes(_ *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	s.asked.Add(1)
	if !s.streams {
		return status.Error(codes.Unimplemented, "unknown method StreamPodSandboxes")
	}
	return stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: []*runtimeapi.PodSandbox{sandbox("streamed", "u", 0, 1)}})
}

// TestListStreamsAreTriedAgainAfterReconnect replaces a runtime without
// streams by one with them, between two lists.
func TestListStreamsAreTriedAgainAfterReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := &switching{fakeRuntime: *lists([]*runtimeapi.PodSandbox{sandbox("unary", "u", 0, 1)}, nil)}
		upgraded := &switching{fakeRuntime: old.fakeRuntime, streams: true}
		var current atomic.Pointer[bufconn.Listener]
		start := func(fake runtimeapi.RuntimeServiceServer) (stop func()) {
			listener := bufconn.Listen(1 << 20)
			current.Store(listener)
			return serve(t, fake, listener)
		}
		stop := start(old)
		client := newClient(t, "/in-memory", cri.Options{DialOptions: []grpc.DialOption{grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { return current.Load().DialContext(ctx) })}})
		list := func(want pleg.ContainerID) {
			t.Helper()
			pods, err := client.ListPods(t.Context())
			if err != nil || len(pods) != 1 || pods[0].Sandboxes[0].ID != want {
				t.Fatalf("got %s, %v; want the sandbox %s", show(pods), err, want)
			}
		}
		for range 5 {
			list("unary")
		}
		if n := old.asked.Load(); n != 1 {
			t.Errorf("the stream that is not there was asked for %d times in 5 lists, want 1", n)
		}
		stop()
		start(upgraded)
		synctest.Wait() // the client sees that the old one is gone
		// This list reconnects: either of its two calls may be the first.
		if _, err := client.ListPods(t.Context()); err != nil {
			t.Fatal(err)
		}
		before := upgraded.asked.Load()
		for range 2 {
			list("streamed")
		}
		if n := upgraded.asked.Load() - before; n != 2 {
			t.Errorf("the stream was used %d times in 2 lists", n)
		}
	})
}

// TestUnaryListsDisablesStreams serves lists to a client that may not stream.
func TestUnaryListsDisablesStreams(t *testing.T) {
	fake := &switching{fakeRuntime: *lists([]*runtimeapi.PodSandbox{sandbox("unary", "u", 0, 1)}, nil), streams: true}
	pods, err := connect(t, fake, cri.Options{UnaryLists: true}).ListPods(t.Context())
	if err != nil || len(pods) != 1 || pods[0].Sandboxes[0].ID != "unary" || fake.asked.Load() != 0 {
		t.Errorf("got %s, %v after %d streams; want the sandbox unary and no stream", show(pods), err, fake.asked.Load())
	}
}

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
// those that are ready and that of the others: the portions overlap, no more.
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
