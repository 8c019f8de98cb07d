package cri

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node returns the answers of a node with this number of pods, with two containers
// each. Each call encodes the maps in a different order.
func node(t testing.TB, pods int, change func([]*runtimeapi.PodSandbox, []*runtimeapi.Container)) (sandboxes, containers []byte) {
	t.Helper()
	s, c := nodeItems(pods)
	if change != nil {
		change(s, c)
	}
	return encode(t, &runtimeapi.ListPodSandboxResponse{Items: s}), encode(t, &runtimeapi.ListContainersResponse{Containers: c})
}

func podUID(pod int) pleg.PodUID {
	return pleg.PodUID(fmt.Sprintf("%08d-1111-2222-3333-444444444444", pod))
}

// nodeItems returns the lists of a kubelet's runtime with this number of pods, with two
// containers each and the usual labels and annotations.
func nodeItems(pods int) (sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) {
	for pod := range pods {
		labels := map[string]string{
			labelPodName: fmt.Sprintf("web-%d", pod), labelPodNamespace: "production",
			labelPodUID: string(podUID(pod)), "app": "web", "pod-template-hash": "6b7c9d",
		}
		sandboxes = append(sandboxes, &runtimeapi.PodSandbox{
			Id:        fmt.Sprintf("%064d", pod),
			Metadata:  &runtimeapi.PodSandboxMetadata{Name: labels[labelPodName], Namespace: "production", Uid: string(podUID(pod))},
			CreatedAt: 1_700_000_000_000_000_000 + int64(pod), Labels: labels,
			Annotations: map[string]string{
				"kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "kubernetes.io/config.source": "api", "prometheus.io/scrape": "true",
			},
		})
		for i := range 2 {
			containers = append(containers, nodeContainer(pod, i))
		}
	}
	return sandboxes, containers
}

func nodeContainer(pod, i int) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: fmt.Sprintf("%063d%d", pod, i), PodSandboxId: fmt.Sprintf("%064d", pod),
		Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", i)},
		Image:    &runtimeapi.ImageSpec{Image: "sha256:0123", Annotations: map[string]string{"a": "1", "b": "2"}},
		ImageRef: "sha256:0123456789abcdef", ImageId: "sha256:0123", State: runtimeapi.ContainerState_CONTAINER_RUNNING,
		CreatedAt: 1_700_000_000_000_000_000 + int64(pod),
		Labels: map[string]string{
			"io.kubernetes.container.name": fmt.Sprintf("container-%d", i), labelPodName: fmt.Sprintf("web-%d", pod),
			labelPodNamespace: "production", labelPodUID: string(podUID(pod)),
		},
		Annotations: map[string]string{
			"io.kubernetes.container.hash": "d0c4f5a1", "io.kubernetes.container.restartCount": "0",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File", "io.kubernetes.pod.terminationGracePeriod": "30",
		},
	}
}

// idleAnswers are the answers of an idle node, with the maps in another order in each.
func idleAnswers(t testing.TB, pods int) (answers [4][2]mem.BufferSlice) {
	t.Helper()
	for i := range answers {
		sandboxes, containers := node(t, pods, nil)
		answers[i] = [2]mem.BufferSlice{pieces(sandboxes), pieces(containers)}
	}
	return answers
}
