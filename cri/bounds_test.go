package cri_test

import (
	"context"
	"errors"
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

func TestStatusCallsOfAPodAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, peak atomic.Int64
		client := connect(t, slowRuntime(&inFlight, &peak), cri.Options{})
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
		if got := peak.Load(); got != 16 || inFlight.Load() != 0 {
			t.Errorf("at most %d calls in flight, %d left; want two for each pod and none", got, inFlight.Load())
		}
	})
}

func TestHungPodDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, peak atomic.Int64
		client := connect(t, slowRuntime(&inFlight, &peak), cri.Options{})
		hung := make(chan error, 1)
		start := time.Now()
		go func() {
			_, err := client.PodStatus(t.Context(), manyContainers("hung", 100), nil)
			hung <- err
		}()
		synctest.Wait()
		if _, err := client.PodStatus(t.Context(), manyContainers("fine", 2), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Second/2 {
			t.Errorf("the pod beside a hung one took %v, want 0.5s", took)
		}
		if err := <-hung; status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("the hung pod ended with %v, want DeadlineExceeded", err)
		}
		if took := time.Since(start); took != 2*time.Minute {
			t.Errorf("the hung pod took %v, want 2m0s", took)
		}
	})
}

func TestPodStatusEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inFlight, peak atomic.Int64
		client := connect(t, slowRuntime(&inFlight, &peak), cri.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() {
			_, err := client.PodStatus(ctx, manyContainers("hung", 8), nil)
			result <- err
		}()
		time.Sleep(time.Second / 2)
		cancel()
		synctest.Wait()
		if err := <-result; status.Code(err) != codes.Canceled {
			t.Errorf("ended with %v, want Canceled", err)
		}
	})
}

func TestListErrors(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		code  codes.Code
		words []string
	}{
		{"refused", status.Error(codes.Unavailable, "not initialized"), codes.Unavailable, []string{"list containers: "}},
		{
			"too large", status.Error(codes.ResourceExhausted, "too large"), codes.ResourceExhausted,
			[]string{"list containers: ", "4096 bytes of Options.MaxRecvBytes"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fake := &fakeRuntime{sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}}
			var works atomic.Bool // a call that was given up may still read it
			fake.listContainers = func(context.Context) (*runtimeapi.ListContainersResponse, error) {
				if !works.Load() {
					return nil, tt.err
				}
				return &runtimeapi.ListContainersResponse{}, nil
			}
			client := connect(t, fake, cri.Options{MaxRecvBytes: 4096})
			pods, err := client.ListPods(t.Context())
			if pods != nil || status.Code(err) != tt.code {
				t.Fatalf("got %v, %v; want the code %v", pods, err, tt.code)
			}
			for _, words := range tt.words {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("error %q lacks %q", err, words)
				}
			}
			works.Store(true)
			wantPods(t, client, 1)
		})
	}
}

// A list that fails ends the other, whose error is then of no interest.
func TestFailedListEndsTheOther(t *testing.T) {
	fails := func(context.Context) error { return status.Error(codes.Internal, "broken") }
	waits := func(ctx context.Context) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}
	for _, tt := range []struct {
		want                  string
		sandboxes, containers func(context.Context) error
	}{
		{"list containers: ", waits, fails},
		{"list pod sandboxes: ", fails, waits},
	} {
		t.Run(tt.want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeRuntime{listSandboxes: tt.sandboxes}
				fake.listContainers = func(ctx context.Context) (*runtimeapi.ListContainersResponse, error) {
					return nil, tt.containers(ctx)
				}
				start := time.Now()
				_, err := connect(t, fake, cri.Options{}).ListPods(t.Context())
				if took := time.Since(start); took != 0 || status.Code(err) != codes.Internal || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("ended after %v with %v, want Internal at once and %q in it", took, err, tt.want)
				}
			})
		})
	}
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

func TestListEndsByDeadlineOrContext(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   cri.Options
		cancel time.Duration
		want   time.Duration
		code   codes.Code
	}{
		{"the kubelet's deadline", cri.Options{}, 0, 2 * time.Minute, codes.DeadlineExceeded},
		{"another deadline", cri.Options{ListTimeout: 7 * time.Second}, 0, 7 * time.Second, codes.DeadlineExceeded},
		{"the caller's context", cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := &fakeRuntime{}
				fake.listContainers = func(ctx context.Context) (*runtimeapi.ListContainersResponse, error) {
					<-ctx.Done()
					return nil, status.FromContextError(ctx.Err()).Err()
				}
				client := connect(t, fake, tt.opts)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, cancel)
				}
				start := time.Now()
				_, err := client.ListPods(ctx)
				if took := time.Since(start); took != tt.want || status.Code(err) != tt.code {
					t.Errorf("ended after %v with %v, want %v and %v", took, err, tt.want, tt.code)
				}
			})
		})
	}
}

func TestConcurrentListsRunOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &fakeRuntime{}
		var inFlight atomic.Int64
		fake.listContainers = func(context.Context) (*runtimeapi.ListContainersResponse, error) {
			if inFlight.Add(1) > 1 {
				t.Error("two lists in flight")
			}
			defer inFlight.Add(-1)
			time.Sleep(time.Second)
			return &runtimeapi.ListContainersResponse{}, nil
		}
		client := connect(t, fake, cri.Options{})
		start := time.Now()
		done := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := client.ListPods(t.Context())
				done <- err
			}()
		}
		time.Sleep(1500 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		if _, err := client.ListPods(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a list waiting for its turn ended with %v, want its context's error", err)
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("3 lists took %v, want 3s", took)
		}
	})
}
