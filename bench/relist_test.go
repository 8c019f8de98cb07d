package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/bench/serial"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// BenchmarkRelist is a relist without a change on a runtime without latency: the cost of
// the comparison. With objects=new each list contains new objects for the same pods; with
// objects=same it contains the same objects, as in lists of package cri.
func BenchmarkRelist(b *testing.B) {
	const containers = 3
	for _, pods := range []int{110, 1000, 5000} {
		first, second := makePods(pods, containers), makePods(pods, containers)
		for _, objects := range []struct {
			name string
			next [2][]*pleg.Pod
		}{
			{"new", [2][]*pleg.Pod{first, second}},
			{"same", [2][]*pleg.Pod{first, first}},
		} {
			name := fmt.Sprintf("/pods=%d/objects=%s", pods, objects.name)
			b.Run("impl=pipeline"+name, func(b *testing.B) { pipelineRelist(b, objects.next, pods) })
			b.Run("impl=serial"+name, func(b *testing.B) { serialRelist(b, objects.next, pods) })
		}
	}
}

func pipelineRelist(b *testing.B, next [2][]*pleg.Pod, pods int) {
	runtime := &memory{lists: make(chan []*pleg.Pod)}
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: 1, History: 8 * pods})
	kit.Must(b, err)
	subscription, err := p.Subscribe(pleg.SubscribeOptions{})
	kit.Must(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	var run errgroup.Group
	run.Go(func() error { return p.Run(ctx) })
	runtime.lists <- next[0]
	for _, pod := range next[0] {
		for range len(pod.Containers) + len(pod.Sandboxes) {
			<-subscription.Events()
		}
	}
	// The list after the last event settles every change.
	runtime.lists <- next[1]
	runtime.lists <- next[0]
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		runtime.lists <- next[n%2]
	}
	perPod(b, pods)
	cancel()
	kit.Must(b, run.Wait())
	if e, open := <-subscription.Events(); open {
		b.Errorf("a relist without a change made event %+v", e)
	}
}

func serialRelist(b *testing.B, next [2][]*pleg.Pod, pods int) {
	events := make(chan pleg.Event, 8*pods)
	s := serial.New(&memory{}, events, time.Minute)
	s.Apply(b.Context(), time.Now(), next[0])
	seen := len(events)
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		s.Apply(b.Context(), time.Now(), next[n%2])
	}
	perPod(b, pods)
	if len(events) != seen {
		b.Errorf("relists without a change made %d events", len(events)-seen)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// makePods returns pods with a ready sandbox and running containers. Two calls return equal
// pods that share no pointer.
func makePods(pods, containers int) []*pleg.Pod {
	out := make([]*pleg.Pod, pods)
	for p := range out {
		pod := &pleg.Pod{UID: pleg.PodUID(fmt.Sprintf("uid-%d", p)), Name: fmt.Sprintf("pod-%d", p), Namespace: "default"}
		sandbox := &pleg.Container{ID: pleg.ContainerID(fmt.Sprintf("sandbox-%d", p)), Name: pod.Name, State: pleg.StateRunning}
		pod.Sandboxes = []*pleg.Container{sandbox}
		for c := range containers {
			pod.Containers = append(pod.Containers, &pleg.Container{
				ID:        pleg.ContainerID(fmt.Sprintf("container-%d-%d", p, c)),
				SandboxID: sandbox.ID, Name: fmt.Sprintf("app-%d", c), State: pleg.StateRunning,
			})
		}
		out[p] = pod
	}
	return out
}

// memory is a runtime without latency. It answers each list with the next of lists, so
// that a benchmark counts them.
type memory struct{ lists chan []*pleg.Pod }

func (m *memory) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	select {
	case pods := <-m.lists:
		return pods, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *memory) PodStatus(_ context.Context, pod *pleg.Pod, _ *pleg.PodStatus) (*pleg.PodStatus, error) {
	return &pleg.PodStatus{UID: pod.UID, Name: pod.Name, Namespace: pod.Namespace}, nil
}

func perPod(b *testing.B, pods int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(pods), "ns/pod")
}
