package simruntime

import (
	"cmp"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// State is the state of a container in the control API.
type State int

// The states, in the order of the CRI but with the most common one first.
const (
	Running State = iota
	Created
	Exited
	Unknown
)

// String returns the state in lower case.
func (s State) String() string { return [...]string{"running", "created", "exited", "unknown"}[s] }

func fromCRI(s cri.ContainerState) State { return [...]State{Created, Running, Exited, Unknown}[s] }

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
	IPs         []string          // The first is the primary one. If nil, the next free ones.
	Containers  []ContainerSpec
}

// ContainerSpec describes a container. The zero value is one that runs.
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
	Sandboxes  []Sandbox   // Newest first.
	Containers []Container // Newest first, of all sandboxes.
}

// Sandbox is the state of a pod sandbox.
type Sandbox struct {
	ID        string
	Attempt   uint32
	Ready     bool
	CreatedAt time.Time
	IPs       []string // Nil when it is not ready.
}

// Container is the state of a container. A time is zero until its event happens.
type Container struct {
	ID         string
	SandboxID  string
	Name       string
	Image      string
	Attempt    uint32
	State      State
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	ExitCode   int32
	Reason     string
}

// Pods returns all pods in the order of their creation, without sandboxes that
// linger after their deletion.
func (rt *Runtime) Pods() []Pod {
	rt.read()
	defer rt.mu.RUnlock()
	out := make([]Pod, 0, len(rt.state.podOrder))
	for _, p := range rt.state.podOrder {
		if t, ok := p.truth(); ok {
			out = append(out, t)
		}
	}
	return out
}

// Pod returns one pod, and whether it exists.
func (rt *Runtime) Pod(uid string) (Pod, bool) {
	rt.read()
	defer rt.mu.RUnlock()
	return rt.state.pod(uid)
}

func (s *state) pod(uid string) (Pod, bool) {
	p := s.pods[uid]
	if p == nil {
		return Pod{}, false
	}
	return p.truth()
}

// truth reports false for a pod that only lingers.
func (p *pod) truth() (Pod, bool) {
	out := Pod{UID: p.uid}
	for _, sb := range slices.Backward(p.sandboxes) {
		if sb.gone != 0 {
			continue
		}
		out.Name, out.Namespace = sb.meta.GetName(), sb.meta.GetNamespace()
		out.Sandboxes = append(out.Sandboxes, sb.truth())
	}
	for _, c := range slices.Backward(p.allContainers()) { // a removed sandbox has none
		out.Containers = append(out.Containers, c.truth())
	}
	return out, len(out.Sandboxes) > 0
}

func (sb *sandbox) truth() Sandbox {
	out := Sandbox{
		ID: sb.id, Attempt: sb.meta.GetAttempt(), Ready: sb.ready,
		CreatedAt: time.Unix(0, sb.createdAt),
	}
	if sb.ready {
		out.IPs = slices.Clone(sb.ips)
	}
	return out
}

func (c *container) truth() Container {
	return Container{
		ID: c.id, SandboxID: c.sb.id, Name: c.meta.GetName(), Image: c.image.GetImage(),
		Attempt: c.meta.GetAttempt(), State: fromCRI(c.state),
		CreatedAt: unixTime(c.createdAt), StartedAt: unixTime(c.startedAt), FinishedAt: unixTime(c.finishedAt),
		ExitCode: c.exitCode, Reason: c.reason,
	}
}

func byCreation(a, b *container) int { return cmp.Compare(a.createdAt, b.createdAt) }

func unixTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// read takes the read lock, after sandboxes whose time has come have left.
func (rt *Runtime) read() {
	if due := rt.nextGone.Load(); due != 0 && time.Now().UnixNano() >= due {
		rt.mu.Lock()
		rt.purge()
		rt.mu.Unlock()
	}
	rt.mu.RLock()
}

// purge drops the sandboxes that have lingered long enough. It needs the lock.
func (rt *Runtime) purge() {
	s := &rt.state
	now := time.Now().UnixNano()
	for len(s.lingering) > 0 && s.lingering[0].gone <= now {
		s.dropSandbox(s.lingering[0])
		s.lingering = s.lingering[1:]
		s.generation++
	}
	next := int64(0)
	if len(s.lingering) > 0 {
		next = s.lingering[0].gone
	}
	rt.nextGone.Store(next)
}
