package cri_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func manyContainers(uid string, n int) *pleg.Pod {
	p := &pleg.Pod{UID: pleg.PodUID(uid)}
	for i := range n {
		p.Containers = append(p.Containers, &pleg.Container{ID: pleg.ContainerID(fmt.Sprintf("%s-%d", uid, i))})
	}
	return p
}

// slowRuntime answers each container status after half a second, and never if the id
// begins with "hung".
func slowRuntime(inFlight, peak *atomic.Int64) *fakeRuntime {
	return &fakeRuntime{containerStatus: func(ctx context.Context, id string) (*runtimeapi.ContainerStatusResponse, error) {
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for p := peak.Load(); n > p; p = peak.Load() {
			if peak.CompareAndSwap(p, n) {
				break
			}
		}
		if strings.HasPrefix(id, "hung") {
			<-ctx.Done()
			return nil, status.FromContextError(ctx.Err()).Err()
		}
		time.Sleep(time.Second / 2)
		return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: id}}, nil
	}}
}

// A pod has two calls at once, and a hung one delays no other.
func TestStatusCallsOfAPodAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, peak atomic.Int64
		client := connect(t, slowRuntime(&inFlight, &peak), cri.Options{})
		hung := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := client.PodStatus(ctx, manyContainers("hung", 100), nil)
			hung <- err
		}()
		synctest.Wait()
		start := time.Now()
		for i := range 8 {
			go func() {
				if _, err := client.PodStatus(t.Context(), manyContainers(fmt.Sprint("pod", i), 8), nil); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != 2*time.Second {
					t.Errorf("pod %d took %v, want 2 s", i, took)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := peak.Load(); got != 18 || inFlight.Load() != 2 {
			t.Errorf("at most %d calls in flight, %d left; want two for each pod and those of the hung one", got, inFlight.Load())
		}
		cancel()
		if err := <-hung; status.Code(err) != codes.Canceled {
			t.Errorf("the hung pod ended with %v, want Canceled", err)
		}
	})
}

func TestListTooLargeToReceive(t *testing.T) {
	big := sandbox("s1", "u1", 0, 1)
	big.Annotations = map[string]string{"a": strings.Repeat("x", 5<<20)}
	fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{big}}
	wantPods(t, connect(t, fake, cri.Options{}), 1)
	_, err := connect(t, fake, cri.Options{MaxRecvBytes: 1 << 20}).ListPods(t.Context())
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "1048576 bytes of Options.MaxRecvBytes") {
		t.Errorf("5 MiB with a limit of 1 MiB: %v, want ResourceExhausted that names the option", err)
	}
}

// A call that hangs ends by its deadline or with the context of the caller.
func TestCallsEndByDeadlineOrContext(t *testing.T) {
	list := func(ctx context.Context, client *cri.Client) error { _, err := client.ListPods(ctx); return err }
	inspect := func(ctx context.Context, client *cri.Client) error {
		_, err := client.PodStatus(ctx, manyContainers("hung", 100), nil)
		return err
	}
	watch := func(ctx context.Context, client *cri.Client) error {
		return client.WatchEvents(ctx, func() {}, func(pleg.Hint) {})
	}
	for _, tt := range []struct {
		name   string
		call   func(context.Context, *cri.Client) error
		opts   cri.Options
		cancel time.Duration
		want   time.Duration
		code   codes.Code
	}{
		{"list, the kubelet's deadline", list, cri.Options{}, 0, 2 * time.Minute, codes.DeadlineExceeded},
		{"list, another deadline", list, cri.Options{ListTimeout: 7 * time.Second}, 0, 7 * time.Second, codes.DeadlineExceeded},
		{"list, the caller's context", list, cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
		{"status, the kubelet's deadline", inspect, cri.Options{}, 0, 2 * time.Minute, codes.DeadlineExceeded},
		{"status, another deadline", inspect, cri.Options{StatusTimeout: 7 * time.Second}, 0, 7 * time.Second, codes.DeadlineExceeded},
		{"events, the caller's context", watch, cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
		{"status, the caller's context", inspect, cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var inFlight, peak atomic.Int64
				fake := slowRuntime(&inFlight, &peak)
				fake.listContainers = func(ctx context.Context) (*runtimeapi.ListContainersResponse, error) {
					<-ctx.Done()
					return nil, status.FromContextError(ctx.Err()).Err()
				}
				fake.events = func(stream eventStream) error {
					<-stream.Context().Done()
					return nil
				}
				client := connect(t, fake, tt.opts)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				start := time.Now()
				err := tt.call(ctx, client)
				if took := time.Since(start); took != tt.want || status.Code(err) != tt.code {
					t.Errorf("ended after %v with %v, want %v and %v", took, err, tt.want, tt.code)
				}
			})
		})
	}
}

// A list that fails ends the other, whose error is then of no interest. The next list
// works.
func TestFailedListEndsTheOther(t *testing.T) {
	fails := func(code codes.Code) func(context.Context) error {
		return func(context.Context) error { return status.Error(code, "broken") }
	}
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	for _, tt := range []struct {
		want                  string
		sandboxes, containers func(context.Context) error
		code                  codes.Code
	}{
		{"list containers: ", waits, fails(codes.Internal), codes.Internal},
		{"list pod sandboxes: ", fails(codes.Internal), waits, codes.Internal},
		{"list containers: the runtime is not available: ", waits, fails(codes.Unavailable), codes.Unavailable},
		{"list containers: the list exceeds the 4096 bytes of Options.MaxRecvBytes", waits, fails(codes.ResourceExhausted), codes.ResourceExhausted},
	} {
		t.Run(tt.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}}
				var works atomic.Bool // a call that was given up may still read it
				fake.listSandboxes = func(ctx context.Context, _ *runtimeapi.PodSandboxFilter) error {
					if works.Load() {
						return nil
					}
					return tt.sandboxes(ctx)
				}
				fake.listContainers = func(ctx context.Context) (*runtimeapi.ListContainersResponse, error) {
					if works.Load() {
						return &runtimeapi.ListContainersResponse{}, nil
					}
					return nil, tt.containers(ctx)
				}
				client := connect(t, fake, cri.Options{MaxRecvBytes: 4096})
				start := time.Now()
				pods, err := client.ListPods(t.Context())
				if took := time.Since(start); pods != nil || took != 0 || status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("ended after %v with %v, %v, want %v at once and %q in it", took, pods, err, tt.code, tt.want)
				}
				works.Store(true)
				wantPods(t, client, 1)
			})
		})
	}
}
