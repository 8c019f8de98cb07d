package cri_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// simulated returns a simulated runtime and a client of it. Both end with the
// test.
func simulated(t *testing.T, opts cri.Options) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	return simulatedWith(t, simruntime.Options{Seed: 7, DualStack: true}, opts)
}

func simulatedWith(t *testing.T, runtime simruntime.Options, opts cri.Options) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	rt, err := simruntime.New(runtime)
	if err != nil {
		t.Fatal(err)
	}
	listener := bufconn.Listen(1 << 20)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error, 1)
	go func() { done <- rt.Serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel(stop)
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("serve: %v", err)
		}
	})
	opts.DialOptions = []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}
	return rt, newClient(t, "/in-memory", opts)
}

var stateNames = map[simruntime.State]pleg.State{
	simruntime.Running: pleg.StateRunning, simruntime.Created: pleg.StateCreated,
	simruntime.Exited: pleg.StateExited, simruntime.Unknown: pleg.StateUnknown,
}

// truth returns the pods of the runtime as a list must show them.
func truth(pods []simruntime.Pod) []*pleg.Pod {
	var want []*pleg.Pod
	for _, p := range pods {
		pod := &pleg.Pod{UID: pleg.PodUID(p.UID), Name: p.Name, Namespace: p.Namespace}
		for _, s := range p.Sandboxes {
			state := pleg.StateExited
			if s.Ready {
				state = pleg.StateRunning
			}
			pod.Sandboxes = append(pod.Sandboxes, &pleg.Container{
				ID: pleg.ContainerID(s.ID), Name: p.Name, Attempt: s.Attempt, State: state, CreatedAt: s.CreatedAt,
			})
		}
		for _, c := range p.Containers {
			pod.Containers = append(pod.Containers, &pleg.Container{
				ID: pleg.ContainerID(c.ID), SandboxID: pleg.ContainerID(c.SandboxID), Name: c.Name,
				Attempt: c.Attempt, State: stateNames[c.State], CreatedAt: c.CreatedAt,
			})
		}
		for _, list := range [][]*pleg.Container{pod.Sandboxes, pod.Containers} {
			slices.SortStableFunc(list, newest)
		}
		want = append(want, pod)
	}
	return want
}

func newest(a, b *pleg.Container) int {
	if c := b.CreatedAt.Compare(a.CreatedAt); c != 0 {
		return c
	}
	if a.ID < b.ID {
		return -1
	}
	return 1
}

// TestListOfSimulatedRuntime lists after changes of all kinds and requires the
// runtime's state each time, and the same pointers for all that did not change.
func TestListOfSimulatedRuntime(t *testing.T) {
	for _, unary := range []bool{false, true} {
		t.Run(fmt.Sprintf("unary=%t", unary), func(t *testing.T) {
			t.Parallel()
			listFollows(t, cri.Options{UnaryLists: unary}, "StreamPodSandboxes", "StreamContainers", "ListPodSandbox", "ListContainers")
		})
	}
}

// forms are the RPCs of the streamed and of the unary lists.
func listFollows(t *testing.T, opts cri.Options, forms ...string) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, opts)
		var last map[pleg.PodUID]*pleg.Pod
		check := func(step string, changed []string) {
			t.Helper()
			pods, err := client.ListPods(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			now := make(map[pleg.PodUID]*pleg.Pod)
			unlabelled := make([]*pleg.Pod, len(pods))
			for i, p := range pods {
				now[p.UID] = p
				plain := *p
				plain.Labels = nil
				unlabelled[i] = &plain
				if before := last[p.UID]; before != nil && (before != p) != slices.Contains(changed, string(p.UID)) {
					t.Errorf("%s: pod %s is the same pointer: %t, want the opposite", step, p.UID, before == p)
				}
				if p.Labels["io.kubernetes.pod.uid"] != string(p.UID) {
					t.Errorf("%s: labels of pod %s: %v", step, p.UID, p.Labels)
				}
			}
			if got, want := show(unlabelled), show(truth(rt.Pods())); got != want {
				t.Fatalf("%s: got\n%swant\n%s", step, got, want)
			}
			last = now
		}
		check("empty", nil)
		for round := range 20 {
			if _, err := rt.Populate(simruntime.Population{Pods: 3, Containers: 2, Exited: round % 2, Dead: round % 3}); err != nil {
				t.Fatal(err)
			}
			check("populate", nil)
			check("idle", nil)
			for _, change := range []simruntime.Change{simruntime.Restart, simruntime.Exit, simruntime.Replace, simruntime.Remove} {
				check(fmt.Sprintf("round %d change %d", round, change), rt.Burst(1+round%4, change))
			}
		}
		for i, rpc := range forms {
			if used := rt.Stats().RPCs[rpc].Calls > 0; used != (opts.UnaryLists == (i >= 2)) {
				t.Errorf("%s was used: %t, want the opposite", rpc, used)
			}
		}
	})
}

func TestStatusOfASimulatedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, client := simulated(t, cri.Options{})
		if _, err := rt.Populate(simruntime.Population{Pods: 3, Containers: 3, Exited: 1, Dead: 1}); err != nil {
			t.Fatal(err)
		}
		pods, err := client.ListPods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range pods {
			want, _ := rt.Pod(string(p.UID))
			got, err := client.PodStatus(t.Context(), p, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.IPs, want.Sandboxes[0].IPs) || len(got.IPs) != 2 {
				t.Errorf("IPs %v, want %v", got.IPs, want.Sandboxes[0].IPs)
			}
			for _, c := range want.Containers {
				st := got.Container(pleg.ContainerID(c.ID))
				if st == nil || st.Name != c.Name || st.State != stateNames[c.State] || st.ExitCode != c.ExitCode || st.Reason != c.Reason ||
					!st.StartedAt.Equal(c.StartedAt) || !st.FinishedAt.Equal(c.FinishedAt) || !st.CreatedAt.Equal(c.CreatedAt) || st.Image != c.Image {
					t.Errorf("status %+v of %+v", st, c)
				}
			}
		}
	})
}

func TestSimulatedFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault simruntime.Fault
		check func(*testing.T, *cri.Client, []*pleg.Pod)
	}{
		{
			"a container vanishes between list and status",
			simruntime.Fault{RPC: "ContainerStatus", Code: codes.NotFound},
			func(t *testing.T, client *cri.Client, pods []*pleg.Pod) {
				got, err := client.PodStatus(t.Context(), pods[0], nil)
				if err != nil || len(got.Containers) != 0 || len(got.Sandboxes) != 1 {
					t.Errorf("got %+v, %v; want a sandbox and no container", got, err)
				}
			},
		},
		{"an answer without a status", simruntime.Fault{RPC: "ContainerStatus", Malform: simruntime.NilStatus}, wantStatusError(codes.Unknown)},
		{"an answer about another", simruntime.Fault{RPC: "PodSandboxStatus", Malform: simruntime.WrongID}, wantStatusError(codes.Unknown)},
		{"a call that hangs", simruntime.Fault{RPC: "PodSandboxStatus", Hang: true}, wantStatusError(codes.DeadlineExceeded)},
		{"containers without metadata", simruntime.Fault{RPC: "ListContainers", Malform: simruntime.NilMetadata}, wantListed(3, 2)},
		{"containers without metadata, streamed", simruntime.Fault{RPC: "StreamContainers", Malform: simruntime.NilMetadata}, wantListed(3, 2)},
		{"containers whose sandbox is not listed", simruntime.Fault{RPC: "ListContainers", Malform: simruntime.OrphanContainers}, wantListed(3, 2)},
		{"containers whose sandbox is not listed, streamed", simruntime.Fault{RPC: "StreamContainers", Malform: simruntime.OrphanContainers}, wantListed(3, 2)},
		{"ids twice", simruntime.Fault{RPC: "ListContainers", Malform: simruntime.DuplicateIDs}, wantListed(3, 2)},
		{"ids twice, streamed", simruntime.Fault{RPC: "StreamContainers", Malform: simruntime.DuplicateIDs}, wantListed(3, 2)},
		{"unknown states", simruntime.Fault{RPC: "ListContainers", Malform: simruntime.UnknownState}, wantListed(3, 2)},
		{"unknown states, streamed", simruntime.Fault{RPC: "StreamContainers", Malform: simruntime.UnknownState}, wantListed(3, 2)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, client := simulated(t, cri.Options{UnaryLists: strings.HasPrefix(tt.fault.RPC, "List")})
				if _, err := rt.Populate(simruntime.Population{Pods: 3, Containers: 2}); err != nil {
					t.Fatal(err)
				}
				pods, err := client.ListPods(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := rt.Inject(tt.fault); err != nil {
					t.Fatal(err)
				}
				tt.check(t, client, pods)
			})
		})
	}
}

func wantStatusError(code codes.Code) func(*testing.T, *cri.Client, []*pleg.Pod) {
	return func(t *testing.T, client *cri.Client, pods []*pleg.Pod) {
		if got, err := client.PodStatus(t.Context(), pods[0], nil); got != nil || err == nil || status.Code(err) != code {
			t.Errorf("got %v, %v; want an error of code %v", got, err, code)
		}
	}
}

func wantListed(pods, containers int) func(*testing.T, *cri.Client, []*pleg.Pod) {
	return func(t *testing.T, client *cri.Client, _ []*pleg.Pod) {
		got, err := client.ListPods(t.Context())
		if err != nil || len(got) != pods {
			t.Fatalf("got %d pods, %v; want %d", len(got), err, pods)
		}
		for _, p := range got {
			if len(p.Containers) != containers || len(p.Sandboxes) != 1 {
				t.Errorf("pod %s has %d containers and %d sandboxes, want %d and 1", p.UID, len(p.Containers), len(p.Sandboxes), containers)
			}
		}
	}
}
