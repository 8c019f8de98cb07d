package cri_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// Two calls of a pod run at once, and a hung pod delays no other. A deadline is that of one call.
func TestStatusCallsOfAPodAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, m := simulation(t, simruntime.Options{})
		client, brief := clientOf(t, m, cri.Options{}), clientOf(t, m, cri.Options{StatusTimeout: time.Second})
		rt.Populate(simruntime.Population{Pods: 9, Containers: 8})
		pods := listPods(t, client)
		rt.Inject(simruntime.Fault{RPC: "ContainerStatus", PodUID: pods[0].UID, Hang: true})
		rt.Inject(simruntime.Fault{RPC: "ContainerStatus", Latency: time.Second / 2})
		hung := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		go func() {
			_, err := client.PodStatus(ctx, pods[0], nil)
			hung <- err
		}()
		for i, p := range pods[1:] {
			go func() {
				if _, err := brief.PodStatus(t.Context(), p, nil); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took != 2*time.Second {
					t.Errorf("pod %d took %v, want 2 s", i, took)
				}
			}()
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s := rt.Stats(); s.PeakInFlight != 18 || s.InFlight != 2 {
			t.Errorf("at most %d calls in flight, %d left; want two for each pod, and the calls of the hung pod left", s.PeakInFlight, s.InFlight)
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
	fake := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{big}}
	wantPods(t, connect(t, fake, cri.Options{}), 1)
	_, err := connect(t, fake, cri.Options{MaxRecvBytes: 1 << 20}).ListPods(t.Context())
	const says = "list pod sandboxes: the list exceeds the 1048576 bytes of Options.MaxRecvBytes, or the runtime's own limit: "
	if status.Code(err) != codes.ResourceExhausted || !strings.HasPrefix(err.Error(), says) || !strings.HasSuffix(err.Error(), "; none is known by its id") {
		t.Errorf("5 MiB with a limit of 1 MiB: %v, want ResourceExhausted that names the option", err)
	}
}

// An answer that cannot be decoded is an error, and no short list.
func TestBrokenAnswer(t *testing.T) {
	broken := []byte{0x0a, 0x05, 'c'} // a text of less than 5 bytes
	for says, fake := range map[string]*rawruntime.Runtime{
		"list pod sandboxes: ": {Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1), withField(sandbox("s2", "u2", 0, 1), broken)}},
		"list containers: ":    {Containers: []*runtimeapi.Container{container("c1", "s1", 0, 1), withField(container("c2", "s1", 0, 1), broken)}},
	} {
		if pods, err := connect(t, fake, cri.Options{}).ListPods(t.Context()); status.Code(err) != codes.Internal || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%d pods, %v, want an error: %s", len(pods), err, says)
		}
	}
}

// A list that is empty once it is listed in portions is empty: all has been removed since.
func TestListTooLargeThatIsEmpty(t *testing.T) {
	fake := &rawruntime.Runtime{Before: func(_ context.Context, request any) error {
		if list, ok := request.(*runtimeapi.ListPodSandboxRequest); ok && list.GetFilter() == nil {
			return status.Error(codes.ResourceExhausted, "too large")
		}
		return nil
	}}
	wantPods(t, connect(t, fake, cri.Options{}), 0)
}

// call makes one call of a client about a pod.
type call func(context.Context, *cri.Client, *pleg.Pod) error

func list(ctx context.Context, client *cri.Client, _ *pleg.Pod) error {
	_, err := client.ListPods(ctx)
	return err
}

func listOne(ctx context.Context, client *cri.Client, p *pleg.Pod) error {
	_, err := client.ListPod(ctx, p.UID)
	return err
}

// A call that hangs ends by its deadline or with the context of the caller.
func TestCallsEndByDeadlineOrContext(t *testing.T) {
	inspect := func(ctx context.Context, client *cri.Client, p *pleg.Pod) error {
		_, err := client.PodStatus(ctx, p, nil)
		return err
	}
	watch := func(ctx context.Context, client *cri.Client, _ *pleg.Pod) error {
		return client.WatchEvents(ctx, func() {}, func(pleg.Hint) {})
	}
	probe := func(ctx context.Context, client *cri.Client, _ *pleg.Pod) error { return client.Probe(ctx) }
	second := func(ctx context.Context, client *cri.Client, p *pleg.Pod) error {
		go func() { _ = list(context.WithoutCancel(ctx), client, p) }()
		synctest.Wait()
		err := list(ctx, client, p)
		if status.Code(err) == codes.Unknown && (!errors.Is(err, context.Canceled) || err.Error() != "wait for the running list: context canceled") {
			t.Errorf("a list that waits for another ended with %v", err)
		}
		return err
	}
	const kubelets = 2 * time.Minute
	others := cri.Options{ListTimeout: 7 * time.Second, StatusTimeout: 11 * time.Second}
	for _, tt := range []struct {
		name   string
		call   call
		hangs  string
		opts   cri.Options
		cancel time.Duration
		want   time.Duration
		code   codes.Code
	}{
		{"list, the kubelet's deadline", list, "ListContainers", cri.Options{}, 0, kubelets, codes.DeadlineExceeded},
		{"list, another deadline", list, "ListContainers", others, 0, 7 * time.Second, codes.DeadlineExceeded},
		{"list, the caller's context", list, "ListContainers", cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
		{"list that waits for another, the caller's context", second, "ListContainers", cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Unknown},
		{"list that waits for another, its own deadline", second, "ListContainers", others, 0, 14 * time.Second, codes.DeadlineExceeded},
		{"list of a pod's sandboxes", listOne, "ListPodSandbox", others, 0, 7 * time.Second, codes.DeadlineExceeded},
		{"list of a pod's containers", listOne, "ListContainers", others, 0, 7 * time.Second, codes.DeadlineExceeded},
		{"status, the kubelet's deadline", inspect, "ContainerStatus", cri.Options{}, 0, kubelets, codes.DeadlineExceeded},
		{"status, another deadline", inspect, "ContainerStatus", others, 0, 11 * time.Second, codes.DeadlineExceeded},
		{"status, the caller's context", inspect, "ContainerStatus", cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
		{"probe, the caller's context", probe, "Version", others, 13 * time.Second, 13 * time.Second, codes.Canceled},
		{"events, the caller's context", watch, "GetContainerEvents", cri.Options{}, 3 * time.Second, 3 * time.Second, codes.Canceled},
	} {
		kit.Bubble(t, tt.name, func(t *testing.T) {
			rt, client := simulated(t, tt.opts)
			rt.Populate(simruntime.Population{Pods: 1, Containers: 3})
			pods := listPods(t, client)
			rt.Inject(simruntime.Fault{RPC: tt.hangs, Hang: true})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.cancel > 0 {
				time.AfterFunc(tt.cancel, cancel)
			}
			start := time.Now()
			err := tt.call(ctx, client, pods[0])
			if took := time.Since(start); took != tt.want || status.Code(err) != tt.code {
				t.Errorf("ended after %v with %v, want %v and %v", took, err, tt.want, tt.code)
			}
		})
	}
}

// A list that fails cancels the other list. The error of the other list does not matter. The next
// list works.
func TestFailedListEndsTheOther(t *testing.T) {
	for _, tt := range []struct {
		want, fails, hangs string
		code               codes.Code
	}{
		{"list containers: ", "ListContainers", "ListPodSandbox", codes.Internal},
		{"list pod sandboxes: ", "ListPodSandbox", "ListContainers", codes.Internal},
		{"list containers: the runtime is not available: ", "ListContainers", "ListPodSandbox", codes.Unavailable},
	} {
		for name, call := range map[string]call{"": list, "list pod u1: ": listOne} {
			kit.Bubble(t, name+tt.want, func(t *testing.T) {
				rt, client := simulated(t, cri.Options{})
				rt.AddPod(simruntime.PodSpec{UID: "u1"})
				pods := listPods(t, client)
				rt.Inject(simruntime.Fault{RPC: tt.fails, Code: tt.code})
				rt.Inject(simruntime.Fault{RPC: tt.hangs, Hang: true})
				start := time.Now()
				err := call(t.Context(), client, pods[0])
				if took := time.Since(start); took != 0 || status.Code(err) != tt.code || !strings.Contains(err.Error(), name+tt.want) {
					t.Errorf("ended after %v with %v, want %v at once and %q in it", took, err, tt.code, name+tt.want)
				}
				if errors.Is(err, pleg.ErrUnavailable) != (tt.code == codes.Unavailable) {
					t.Errorf("is %v one of a runtime that is not available: %t", err, tt.code != codes.Unavailable)
				}
				rt.ClearAll()
				must(t, call(t.Context(), client, pods[0]))
			})
		}
	}
}

// A list that panics, such as by an interceptor, ends together with the other list: the next list uses the
// same tables.
func TestListThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		panics := true
		intercept := func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			switch {
			case panics && method == runtimeapi.RuntimeService_ListContainers_FullMethodName:
				panic("test")
			case method == runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:
				time.Sleep(time.Second)
			}
			return invoke(ctx, method, req, reply, conn, o...)
		}
		fake := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}}
		client := connect(t, fake, cri.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(intercept)}})
		began := time.Now()
		func() {
			defer func() { _ = recover() }()
			listPods(t, client)
		}()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the panic came after %v, want 1s", took)
		}
		panics = false
		wantPods(t, client, 1)
	})
}

// More sandboxes of one pod than the client remembers until the next list of all pods block nothing.
func TestManySandboxesOfOnePod(t *testing.T) {
	const many = 1100
	synctest.Test(t, func(t *testing.T) {
		fake := &rawruntime.Runtime{}
		for n := range many {
			s := sandbox(fmt.Sprint("s", n), "u1", runtimeapi.PodSandboxState_SANDBOX_NOTREADY, int64(n))
			s.Metadata.Name, s.Metadata.Namespace, s.Labels["io.kubernetes.pod.uid"] = "web", "shop", "u1"
			fake.Sandboxes = append(fake.Sandboxes, s)
		}
		client := connect(t, fake, cri.Options{})
		listPods(t, client)
		if p, err := client.ListPod(t.Context(), "u1"); err != nil || len(p.Sandboxes) != many {
			t.Errorf("ListPod = %+v, %v, want %d sandboxes", p, err, many)
		}
	})
}
