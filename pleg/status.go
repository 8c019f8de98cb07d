package pleg

import (
	"slices"
	"time"
)

// PodStatus is the result of an inspection of one pod. It corresponds to the
// kubelet's kubecontainer.PodStatus.
type PodStatus struct {
	UID       PodUID
	Name      string
	Namespace string
	// IPs are the pod's addresses, the primary address first. A status without a
	// ready sandbox keeps the last known addresses.
	IPs []string
	// Containers and Sandboxes contain a status for each listed id that still existed
	// at the inspection.
	Containers []*ContainerStatus
	Sandboxes  []*SandboxStatus
	// ObservedAt is the time before the list that led to this inspection: the status contains every
	// earlier change. It is not the time of the inspection itself (kubelet v1.37,
	// GenericPLEG.Relist).
	ObservedAt time.Time
	// Native is the status in the types of an embedder's runtime. It passes
	// unchanged from PodStatus to the cache and the embedder's store. Package cri
	// leaves it nil.
	Native any
}

// Container returns the status of the container with this id, or nil. s may be nil.
func (s *PodStatus) Container(id ContainerID) *ContainerStatus {
	if s == nil {
		return nil
	}
	for _, c := range s.Containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// Sandbox returns the status of the sandbox with this id, or nil. s may be nil.
func (s *PodStatus) Sandbox(id ContainerID) *SandboxStatus {
	if s == nil {
		return nil
	}
	for _, sandbox := range s.Sandboxes {
		if sandbox.ID == id {
			return sandbox
		}
	}
	return nil
}

// SandboxReady reports whether a sandbox of the pod is ready. s may be nil.
func (s *PodStatus) SandboxReady() bool {
	return s != nil && slices.ContainsFunc(s.Sandboxes, func(sandbox *SandboxStatus) bool { return sandbox.Ready })
}

// ContainerStatus is the status of one container.
type ContainerStatus struct {
	ID      ContainerID
	Name    string
	Attempt uint32
	State   State
	// CreatedAt, StartedAt and FinishedAt are times of the runtime's wall clock; zero before it was
	// created, started or ended.
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	// ExitCode, Reason and Message are valid once the state is [StateExited]. Reason
	// is the runtime's, such as Completed, Error or OOMKilled.
	ExitCode int32
	Reason   string
	Message  string
	// Image is the image as the pod names it, ImageRef the runtime's digest.
	Image    string
	ImageRef string
	// LogPath is the file on the node with the container's output; empty if the runtime does
	// not say.
	LogPath string
	Labels  map[string]string
	// Annotations include the restart count that the kubelet wrote.
	Annotations map[string]string
}

// SandboxStatus is the status of one pod sandbox.
type SandboxStatus struct {
	ID        ContainerID
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	// IPs are the addresses of this sandbox, the primary address first; empty on
	// the host network and once the network is torn down.
	IPs         []string
	HostNetwork bool
	Labels      map[string]string
	Annotations map[string]string
}
