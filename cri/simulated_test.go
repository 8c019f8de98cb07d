package cri_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

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
			pods := listPods(t, client)
			now := make(map[pleg.PodUID]*pleg.Pod)
			for _, p := range pods {
				now[p.UID] = p
				if before := last[p.UID]; before != nil && (before != p) != slices.Contains(changed, string(p.UID)) {
					t.Errorf("%s: pod %s is the same pointer: %t, want the opposite", step, p.UID, before == p)
				}
				if p.Labels["io.kubernetes.pod.uid"] != string(p.UID) {
					t.Errorf("%s: labels of pod %s: %v", step, p.UID, p.Labels)
				}
			}
			wantTruth(t, step, pods, rt.Pods())
			last = now
		}
		check("empty", nil)
		for round := range 20 {
			_, err := rt.Populate(simruntime.Population{Pods: 3, Containers: 2, Exited: round % 2, Dead: round % 3})
			must(t, err)
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
		_, err := rt.Populate(simruntime.Population{Pods: 3, Containers: 3, Exited: 1, Dead: 1})
		must(t, err)
		for _, p := range listPods(t, client) {
			want, _ := rt.Pod(string(p.UID))
			got, err := client.PodStatus(t.Context(), p, nil)
			must(t, err)
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
				populate(t, rt, 3, 2)
				pods := listPods(t, client)
				inject(t, rt, tt.fault)
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

// What a burst of 110 pods with 2 containers costs: all of them are new, then both
// containers of each restart, then all are reinspected.
func TestStatusCallsOfABurst(t *testing.T) {
	const pods = 110
	for _, test := range []struct {
		name                     string
		carries                  bool
		fresh, restarted, anyway int64 // calls for each pod
	}{
		{name: "containerd", fresh: 3, restarted: 4, anyway: 5},
		{name: "CRI-O with pod events", carries: true, fresh: 1, restarted: 1, anyway: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt, client := simulatedWith(t, simruntime.Options{StatusesInSandbox: test.carries}, cri.Options{})
				populate(t, rt, pods, 2)
				last := make(map[pleg.PodUID]*pleg.PodStatus)
				inspect := func(step string, want int64) {
					t.Helper()
					listed := listPods(t, client)
					before := rt.Stats().Calls()
					for _, p := range listed {
						st, err := client.PodStatus(t.Context(), p, last[p.UID])
						must(t, err)
						if len(st.Containers) != len(p.Containers) || len(st.IPs) == 0 {
							t.Errorf("%s: %d of %d containers, IPs %v", step, len(st.Containers), len(p.Containers), st.IPs)
						}
						last[p.UID] = st
					}
					if got := rt.Stats().Calls() - before; got != want*pods {
						t.Errorf("%s: %d calls for %d pods, want %d for each", step, got, pods, want)
					}
				}
				inspect("new", test.fresh)
				rt.Burst(pods, simruntime.Restart)
				inspect("restarted", test.restarted)
				clear(last)
				inspect("reinspected", test.anyway)
			})
		})
	}
}
