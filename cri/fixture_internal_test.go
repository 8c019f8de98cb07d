package cri

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node returns the answers of a kubelet's runtime with this number of pods, with two containers
// each and the usual labels and annotations. Each call encodes the maps in a different order.
func node(t testing.TB, pods int) (sandboxes, containers []byte) {
	t.Helper()
	var s runtimeapi.ListPodSandboxResponse
	var c runtimeapi.ListContainersResponse
	for pod := range pods {
		id, uid := fmt.Sprintf("%064d", pod), fmt.Sprintf("%08d-1111-2222-3333-444444444444", pod)
		created := 1_700_000_000_000_000_000 + int64(pod)
		labels := map[string]string{
			labelPodName: fmt.Sprintf("web-%d", pod), labelPodNamespace: "production",
			labelPodUID: uid, "app": "web", "pod-template-hash": "6b7c9d",
		}
		s.Items = append(s.Items, &runtimeapi.PodSandbox{
			Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: labels[labelPodName], Namespace: "production", Uid: uid},
			CreatedAt: created, Labels: labels,
			Annotations: map[string]string{
				"kubernetes.io/config.seen": "2026-01-01T00:00:00Z", "kubernetes.io/config.source": "api", "prometheus.io/scrape": "true",
			},
		})
		for i := range 2 {
			c.Containers = append(c.Containers, &runtimeapi.Container{
				Id: fmt.Sprintf("%063d%d", pod, i), PodSandboxId: id,
				Metadata: &runtimeapi.ContainerMetadata{Name: fmt.Sprintf("container-%d", i)},
				Image:    &runtimeapi.ImageSpec{Image: "sha256:0123", UserSpecifiedImage: "nginx:1"},
				ImageRef: "sha256:0123456789abcdef", ImageId: "sha256:0123", State: runtimeapi.ContainerState_CONTAINER_RUNNING,
				CreatedAt: created, Labels: labels,
				Annotations: map[string]string{"io.kubernetes.container.hash": "d0c4f5a1", "io.kubernetes.container.restartCount": "0"},
			})
		}
	}
	return encode(t, &s), encode(t, &c)
}
