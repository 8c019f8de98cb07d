package simruntime

import (
	"math/rand/v2"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// State is the pods of a runtime, for the time of one [Runtime.Update]. It must not be used
// after the function given to Update has returned, nor by two goroutines.
// A method that returns an error has changed nothing.
//
// Statuses and messages never change once they are set, so that readers may use them after they
// release the lock.
type State struct {
	rt       *Runtime
	rng      *rand.Rand
	lastTime int64 // last result of now, Unix ns
	nextIP   int

	sandboxes []*sandbox // in order of creation
	pods      map[pleg.PodUID]*sandbox
	byID      map[string]object
}

// object is a sandbox or a container.
type object interface{ uid() pleg.PodUID }

type sandbox struct {
	lingers    bool         // deleted, and still listed
	containers []*container // in order of creation
	meta       *cri.PodSandboxMetadata
	of         *pleg.SandboxStatus

	status *cri.PodSandboxStatus // of as a message
	item   *cri.PodSandbox       // of as an item of a list
	encoded
}

type container struct {
	sb *sandbox
	of *pleg.ContainerStatus

	status *cri.ContainerStatus // of as a message
	item   *cri.Container       // of as an item of a list
	encoded
}

func (sb *sandbox) id() string        { return sb.status.Id }
func (sb *sandbox) uid() pleg.PodUID  { return pleg.PodUID(sb.meta.Uid) }
func (c *container) id() string       { return c.status.Id }
func (c *container) uid() pleg.PodUID { return c.sb.uid() }
func (c *container) exited() bool     { return c.of.State == pleg.StateExited }

// now returns the wall clock time, and never the same time twice: clients sort by it.
func (s *State) now() time.Time {
	s.lastTime = max(time.Now().UnixNano(), s.lastTime+1)
	return time.Unix(0, s.lastTime)
}

// pod returns the status of the pod, its containers newest first.
func (sb *sandbox) pod() *pleg.PodStatus {
	pod := &pleg.PodStatus{
		UID: sb.uid(), Name: sb.meta.Name, Namespace: sb.meta.Namespace, IPs: sb.of.IPs, Sandboxes: []*pleg.SandboxStatus{sb.of},
	}
	for _, c := range slices.Backward(sb.containers) {
		pod.Containers = append(pod.Containers, c.of)
	}
	return pod
}

// live returns the sandboxes that do not only linger, in the order of their creation.
func (s *State) live() []*sandbox {
	return slices.DeleteFunc(slices.Clone(s.sandboxes), func(sb *sandbox) bool { return sb.lingers })
}

// Pod returns one pod as the update has changed it so far, or nil.
func (s *State) Pod(uid pleg.PodUID) *pleg.PodStatus {
	if sb := s.pods[uid]; sb != nil {
		return sb.pod()
	}
	return nil
}

// Update runs fn with exclusive access: no call of a client sees the state
// between its steps. Events go out in the order of the steps. fn must not call
// methods of the Runtime.
func (rt *Runtime) Update(fn func(*State)) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	fn(&rt.state)
}

// Pods returns all pods in the order of their creation, each with one sandbox and its
// containers newest first, without sandboxes that linger after their deletion. The statuses are those of
// the moment; they must not be modified.
func (rt *Runtime) Pods() []*pleg.PodStatus {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	out := make([]*pleg.PodStatus, 0, len(rt.state.pods))
	for _, sb := range rt.state.live() {
		out = append(out, sb.pod())
	}
	return out
}

// Pod returns one pod, or nil if it does not exist.
func (rt *Runtime) Pod(uid pleg.PodUID) *pleg.PodStatus {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.state.Pod(uid)
}
