package simruntime

import (
	"slices"
	"time"
)

// State is the state of a container in the control API.
type State int

// The states.
const (
	Running State = iota
	Exited
)

// Reasons that runtimes give for an exit. An empty reason given to
// [Txn.ExitContainer] becomes Completed for code 0 and Error for the others.
const (
	ReasonCompleted = "Completed"
	ReasonError     = "Error"
	ReasonOOMKilled = "OOMKilled"
)

// PodSpec describes a pod to be added. The zero value is a pod with a
// realistic name in namespace "default", one sandbox that is ready, and no
// container.
type PodSpec struct {
	UID         string            // If empty, one is drawn.
	Namespace   string            // If empty, "default".
	Name        string            // If empty, one is drawn.
	Labels      map[string]string // Besides those that the kubelet sets.
	Annotations map[string]string // Besides those that the kubelet sets.
	Containers  []ContainerSpec
}

// ContainerSpec describes a container. The zero value is a container that runs.
type ContainerSpec struct {
	Name     string // If empty, "app", "app-2" and so on.
	Image    string // If empty, one derived from the name.
	Attempt  uint32
	State    State
	ExitCode int32  // Of an Exited one.
	Reason   string // Of an Exited one. If empty, it follows from the code.
}

// Pod is the state of a pod at one moment. It is a copy.
type Pod struct {
	UID        string
	Namespace  string
	Name       string
	Sandboxes  []Sandbox   // One.
	Containers []Container // Newest first.
}

// Sandbox is the state of a pod sandbox.
type Sandbox struct {
	ID        string
	Ready     bool
	CreatedAt time.Time
	IPs       []string // Nil when it is not ready.
}

// Container is the state of a container.
type Container struct {
	ID        string
	Name      string
	Image     string
	Attempt   uint32
	State     State
	CreatedAt time.Time
	ExitCode  int32  // Of an Exited one.
	Reason    string // Of an Exited one.
}

// Pods returns all pods in the order of their creation, without sandboxes that
// linger after their deletion.
func (rt *Runtime) Pods() []Pod {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	out := make([]Pod, 0, len(rt.state.pods))
	for _, sb := range rt.state.live() {
		out = append(out, sb.truth())
	}
	return out
}

// Pod returns one pod, and whether it exists.
func (rt *Runtime) Pod(uid string) (Pod, bool) {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.state.pod(uid)
}

func (s *state) pod(uid string) (Pod, bool) {
	sb := s.pods[uid]
	if sb == nil {
		return Pod{}, false
	}
	return sb.truth(), true
}

// live returns the sandboxes that do not only linger, in the order of their creation.
func (s *state) live() []*sandbox {
	return slices.DeleteFunc(slices.Clone(s.sandboxOrder), func(sb *sandbox) bool { return sb.lingers })
}

func (sb *sandbox) truth() Pod {
	st := sb.status
	of := Sandbox{ID: st.Id, Ready: sb.ready(), CreatedAt: time.Unix(0, st.CreatedAt)}
	if st.Network.Ip != "" {
		of.IPs = []string{st.Network.Ip}
		for _, ip := range st.Network.AdditionalIps {
			of.IPs = append(of.IPs, ip.Ip)
		}
	}
	pod := Pod{UID: sb.uid(), Namespace: st.Metadata.Namespace, Name: st.Metadata.Name, Sandboxes: []Sandbox{of}}
	for _, c := range slices.Backward(sb.containers) {
		pod.Containers = append(pod.Containers, c.truth())
	}
	return pod
}

func (c *container) truth() Container {
	st, state := c.status, Running
	if c.exited() {
		state = Exited
	}
	return Container{
		ID: st.Id, Name: c.name(), Image: st.Image.Image, Attempt: st.Metadata.Attempt, State: state,
		CreatedAt: time.Unix(0, st.CreatedAt), ExitCode: st.ExitCode, Reason: st.Reason,
	}
}
