package cri_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
