package cri_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

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
