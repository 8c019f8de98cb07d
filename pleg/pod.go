package pleg

import (
	"slices"
	"time"
)

// PodUID identifies a pod on this node for as long as the pod exists.
type PodUID string

// ContainerID identifies a container or a pod sandbox within one runtime. It is
// the bare CRI id, without a scheme such as "containerd://".
type ContainerID string

// State is the state of a container as its runtime lists it. The state of a pod sandbox is
// [StateRunning] while the sandbox is READY and [StateExited] once it is NOTREADY.
type State uint8

const (
	// StateUnknown is the state of a container that the runtime does not know, and
	// any CRI state that this version does not know.
	StateUnknown State = iota
	// StateCreated is the state of a container that has not been started.
	StateCreated
	// StateRunning is the state of a running container and of a READY sandbox.
	StateRunning
	// StateExited is the state of an ended container and of a NOTREADY sandbox.
	StateExited
)

// String returns the name of the state in lower case.
func (s State) String() string {
	switch s {
	case StateCreated:
		return "created"
	case StateRunning:
		return "running"
	case StateExited:
		return "exited"
	default:
		return "unknown"
	}
}

// Container is a container, or a pod sandbox, in a list of the runtime.
type Container struct {
	ID ContainerID
	// SandboxID is the sandbox that the container belongs to; empty for a sandbox.
	SandboxID ContainerID
	// Name is the container's name in the pod; for a sandbox, the pod's name.
	Name string
	// Attempt counts the containers of this name, or the sandboxes, that the
	// pod had before.
	Attempt uint32
	State   State
	// CreatedAt is the runtime's wall clock.
	CreatedAt time.Time
}

// Pod is a pod as the runtime listed it: with all its containers and sandboxes, dead ones too.
type Pod struct {
	UID       PodUID
	Name      string
	Namespace string
	// Labels are the pod's labels, taken from its newest sandbox. If nil, selectors use the labels
	// of an earlier list.
	Labels map[string]string
	// Containers and Sandboxes are in the order in which their events are to
	// be computed. Package cri lists the newest first, as the kubelet does.
	Containers []*Container
	Sandboxes  []*Container
	// Native is the pod in the types of an embedder's runtime. It passes unchanged
	// from ListPods to PodStatus. Package cri leaves it nil.
	Native any
}

// Running reports whether a container or a sandbox of the pod runs.
func (p *Pod) Running() bool {
	running := func(c *Container) bool { return c.State == StateRunning }
	return slices.ContainsFunc(p.Containers, running) || slices.ContainsFunc(p.Sandboxes, running)
}
