package cri_test

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

func present(p *pleg.Pod) []*pleg.Pod {
	if p == nil {
		return nil
	}
	return []*pleg.Pod{p}
}

func ofKubelet(s *runtimeapi.PodSandbox) *runtimeapi.PodSandbox {
	s.Labels["io.kubernetes.pod.uid"] = s.GetMetadata().GetUid()
	return s
}

type listPodCase struct {
	name       string
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
	uid        pleg.PodUID
	whole      int32 // expected lists of all pods
}

func listPodCases() []listPodCase {
	return []listPodCase{
		{
			"the kubelet's",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1")},
			"u1", 0,
		},
		{
			"another client's",
			[]*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)},
			[]*runtimeapi.Container{container("c1", "s1", 1, 2)},
			"u1", 1,
		},
		{
			"another client's container in it",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1"), container("c2", "s1", 1, 2)},
			"u1", 1,
		},
		{
			"another client's sandbox beside its own",
			[]*runtimeapi.PodSandbox{ofKubelet(ofPod(sandbox("s1", "u1", 1, 1), "a", "b")), ofPod(sandbox("s2", "u1", 0, 2), "a", "b")},
			nil, "u1", 1,
		},
		{
			"a container with the label of another pod",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u2")},
			"u1", 1,
		},
		{
			"the pod of that label",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u2", 0, 1))},
			[]*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u2")},
			"u2", 1,
		},
		{
			"the first of two pods with the UID",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u1", 0, 2))},
			nil, "u1", 1,
		},
		{
			"the second of two pods with the UID",
			[]*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1)), ofKubelet(sandbox("s2", "u1", 0, 2))},
			nil, "u1@ns-s2.name-s2", 1,
		},
		{
			"without its sandbox", nil, []*runtimeapi.Container{labelled(container("c1", "s1", 1, 2), "u1")}, "u1", 0,
		},
		{"unknown among the kubelet's", []*runtimeapi.PodSandbox{ofKubelet(sandbox("s1", "u1", 0, 1))}, nil, "u9", 0},
		{"unknown beside another client's", []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1)}, nil, "u9", 1},
	}
}

// TestListPodEqualsListPods lists pods of the kubelet and of other clients alone.
func TestListPodEqualsListPods(t *testing.T) {
	for _, tt := range listPodCases() {
		t.Run(tt.name, func(t *testing.T) {
			fake := &rawruntime.Runtime{Sandboxes: tt.sandboxes, Containers: tt.containers}
			client := connect(t, fake, cri.Options{})
			want := slices.DeleteFunc(listPods(t, client), func(p *pleg.Pod) bool { return p.UID != tt.uid })
			fake.Whole.Store(0)
			got, err := client.ListPod(t.Context(), tt.uid)
			if err != nil || show(present(got)) != show(want) {
				t.Errorf("got %s, %v; want %s", show(present(got)), err, show(want))
			}
			if n := fake.Whole.Load(); n != tt.whole {
				t.Errorf("it took %d lists of all, want %d", n, tt.whole)
			}
		})
	}
}

// Before the first list, the client does not know whether the label finds a pod.
func TestListPodBeforeTheFirstList(t *testing.T) {
	fake := &rawruntime.Runtime{Sandboxes: []*runtimeapi.PodSandbox{sandbox("s1", "u1", 0, 1), ofKubelet(sandbox("s2", "u2", 0, 1))}}
	client := connect(t, fake, cri.Options{})
	for _, uid := range []pleg.PodUID{"u1", "u2"} {
		if got, err := client.ListPod(t.Context(), uid); err != nil || got == nil || got.UID != uid {
			t.Errorf("got %v, %v; want the pod %s", got, err, uid)
		}
	}
	if whole, one := fake.Whole.Load(), fake.One.Load(); whole != 1 || one != 1 {
		t.Errorf("it took %d lists of all and %d of a pod, want 1 and 1", whole, one)
	}
}
