package cri_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
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
			if round == 10 {
				rt.Burst(len(rt.Pods()), simruntime.Remove)
				check("all are gone", nil)
				wantPods(t, client, 0)
				_, err = rt.Populate(simruntime.Population{Pods: 3, Containers: 2})
				must(t, err)
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

// simulated returns a simulated runtime and a client of it. Both end with the test.
func simulated(t *testing.T, opts cri.Options) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	return simulatedWith(t, simruntime.Options{Seed: 7, DualStack: true}, opts)
}

func simulatedWith(t *testing.T, runtime simruntime.Options, opts cri.Options) (*simruntime.Runtime, *cri.Client) {
	t.Helper()
	rt, err := simruntime.New(runtime)
	must(t, err)
	o := &outlet{}
	listener := o.listen()
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, listener) })
	return rt, o.client(t, opts)
}

func populate(t *testing.T, rt *simruntime.Runtime, pods, containers int) []simruntime.Pod {
	t.Helper()
	added, err := rt.Populate(simruntime.Population{Pods: pods, Containers: containers})
	must(t, err)
	return added
}

func inject(t *testing.T, rt *simruntime.Runtime, fault simruntime.Fault) {
	t.Helper()
	_, err := rt.Inject(fault)
	must(t, err)
}

// wantTruth requires that pods have what the runtime has, apart from the labels.
func wantTruth(t *testing.T, step string, pods []*pleg.Pod, now []simruntime.Pod) {
	t.Helper()
	if got, want := show(plain(pods)), show(truth(now)); got != want {
		t.Fatalf("%s: got\n%swant\n%s", step, got, want)
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
			slices.SortFunc(list, func(a, b *pleg.Container) int {
				return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
			})
		}
		want = append(want, pod)
	}
	return want
}
