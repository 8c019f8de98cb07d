package kubelet

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podOf converts a pod. It keeps the order of containers and sandboxes. A nil pod
// stays nil: the pipeline skips it.
func podOf(native *kubecontainer.Pod) *pleg.Pod {
	if native == nil {
		return nil
	}
	return &pleg.Pod{
		UID:        pleg.PodUID(native.ID),
		Name:       native.Name,
		Namespace:  native.Namespace,
		Containers: containersOf(native.Containers),
		Sandboxes:  containersOf(native.Sandboxes),
		Native:     native,
	}
}

func containersOf(natives []*kubecontainer.Container) []*pleg.Container {
	containers := make([]pleg.Container, len(natives))
	out := make([]*pleg.Container, 0, len(natives))
	for i, c := range natives {
		if c == nil {
			continue
		}
		containers[i] = pleg.Container{
			ID:        pleg.ContainerID(c.ID.ID),
			SandboxID: pleg.ContainerID(c.PodSandboxID),
			Name:      c.Name,
			State:     stateOf(c.State),
			CreatedAt: time.Unix(0, c.CreatedAt),
		}
		out = append(out, &containers[i])
	}
	return out
}

func stateOf(s kubecontainer.State) pleg.State {
	switch s {
	case kubecontainer.ContainerStateCreated:
		return pleg.StateCreated
	case kubecontainer.ContainerStateRunning:
		return pleg.StateRunning
	case kubecontainer.ContainerStateExited:
		return pleg.StateExited
	default:
		return pleg.StateUnknown
	}
}

// inspected is the Native of a status.
type inspected struct {
	status *kubecontainer.PodStatus
	listed time.Time // the time at which the pod was listed
}

// statusOf converts a status. Like GenericPLEG it ignores the name in the status.
func statusOf(native *kubecontainer.PodStatus, pod *kubecontainer.Pod) *pleg.PodStatus {
	if native == nil {
		return nil
	}
	s := &pleg.PodStatus{
		UID:       pleg.PodUID(pod.ID),
		Name:      pod.Name,
		Namespace: pod.Namespace,
		IPs:       native.IPs,
		Native:    inspected{native, pod.Timestamp},
	}
	for _, c := range native.ContainerStatuses {
		s.Containers = append(s.Containers, containerStatusOf(c))
	}
	for _, c := range native.SandboxStatuses {
		s.Sandboxes = append(s.Sandboxes, sandboxStatusOf(c))
	}
	return s
}

func containerStatusOf(c *kubecontainer.Status) *pleg.ContainerStatus {
	if c == nil {
		return nil
	}
	return &pleg.ContainerStatus{
		ID:         pleg.ContainerID(c.ID.ID),
		Name:       c.Name,
		Attempt:    uint32(c.RestartCount),
		State:      stateOf(c.State),
		CreatedAt:  c.CreatedAt,
		StartedAt:  c.StartedAt,
		FinishedAt: c.FinishedAt,
		ExitCode:   int32(c.ExitCode),
		Reason:     c.Reason,
		Message:    c.Message,
		Image:      c.Image,
		ImageRef:   c.ImageRef,
	}
}

func sandboxStatusOf(s *runtimeapi.PodSandboxStatus) *pleg.SandboxStatus {
	if s == nil {
		return nil
	}
	return &pleg.SandboxStatus{
		ID:        pleg.ContainerID(s.GetId()),
		Attempt:   s.GetMetadata().GetAttempt(),
		Ready:     s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY,
		CreatedAt: time.Unix(0, s.GetCreatedAt()),
	}
}
