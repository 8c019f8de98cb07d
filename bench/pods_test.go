package bench_test

import (
	"context"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

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

// perUnit reports the time per unit, for n units in each iteration.
func perUnit(b *testing.B, n int, unit string) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/"+unit)
}
