package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/utils/clock"
)

// memory answers from its fields.
type memory struct {
	kubecontainer.Runtime
	pods []*kubecontainer.Pod
}

func (m *memory) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) { return m.pods, nil }

func (m *memory) GetPodStatus(_ context.Context, pod *kubecontainer.Pod) (*kubecontainer.PodStatus, error) {
	return &kubecontainer.PodStatus{ID: pod.ID, Name: pod.Name, Namespace: pod.Namespace}, nil
}

// BenchmarkRelist is the kubelet's side of the benchmark of the same name in the
// parent folder: a relist without a change and without the runtime's part.
func BenchmarkRelist(b *testing.B) {
	const containers = 3
	for _, pods := range []int{110, 1000, 5000} {
		first, second := makePods(pods, containers), makePods(pods, containers)
		name := fmt.Sprintf("impl=kubelet/pods=%d/objects=", pods)
		b.Run(name+"new", func(b *testing.B) {
			relistUnchanged(b, [2][]*kubecontainer.Pod{first, second}, pods, containers)
		})
		b.Run(name+"same", func(b *testing.B) {
			relistUnchanged(b, [2][]*kubecontainer.Pod{first, first}, pods, containers)
		})
	}
}

func relistUnchanged(b *testing.B, next [2][]*kubecontainer.Pod, pods, containers int) {
	events := make(chan *pleg.PodLifecycleEvent, pods*(containers+1)+1)
	runtime := &memory{pods: next[0]}
	durations := &pleg.RelistDuration{RelistPeriod: time.Second, RelistThreshold: 3 * time.Minute}
	generator, ok := pleg.NewGenericPLEG(runtime, events, durations,
		kubecontainer.NewCache(), clock.RealClock{}).(*pleg.GenericPLEG)
	if !ok {
		b.Fatal("NewGenericPLEG has not returned a GenericPLEG")
	}
	generator.Relist(b.Context())
	if len(events) != pods*(containers+1) {
		b.Fatalf("the first relist made %d events, want %d", len(events), pods*(containers+1))
	}
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		runtime.pods = next[n%2]
		generator.Relist(b.Context())
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pods), "ns/pod")
	if len(events) != pods*(containers+1) {
		b.Errorf("relists without a change made %d events", len(events)-pods*(containers+1))
	}
}

func makePods(pods, containers int) []*kubecontainer.Pod {
	out := make([]*kubecontainer.Pod, pods)
	for p := range out {
		pod := &kubecontainer.Pod{ID: types.UID(fmt.Sprintf("uid-%d", p)), Name: fmt.Sprintf("pod-%d", p), Namespace: "default"}
		pod.Sandboxes = []*kubecontainer.Container{{
			ID: kubecontainer.ContainerID{Type: "sim", ID: fmt.Sprintf("sandbox-%d", p)}, State: kubecontainer.ContainerStateRunning,
		}}
		for c := range containers {
			pod.Containers = append(pod.Containers, &kubecontainer.Container{
				ID:   kubecontainer.ContainerID{Type: "sim", ID: fmt.Sprintf("container-%d-%d", p, c)},
				Name: fmt.Sprintf("app-%d", c), State: kubecontainer.ContainerStateRunning,
			})
		}
		out[p] = pod
	}
	return out
}
