package simruntime

import (
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// state is guarded by Runtime.mu. Statuses and messages never change once they are
// set, so that readers may use them after they release the lock.
type state struct {
	lastTime   int64 // last result of now, Unix ns
	nextIP     int
	sandboxes  map[string]*sandbox
	containers map[pleg.ContainerID]*container
	pods       map[pleg.PodUID]*sandbox // one for each pod

	// In order of creation.
	sandboxOrder   []*sandbox
	containerOrder []*container
}

// now returns the wall clock time, and never the same time twice: lists are
// sorted by it.
func (s *state) now() time.Time {
	s.lastTime = max(time.Now().UnixNano(), s.lastTime+1)
	return time.Unix(0, s.lastTime)
}

type sandbox struct {
	lingers    bool // deleted, and still listed
	containers []*container
	meta       *cri.PodSandboxMetadata
	of         *pleg.SandboxStatus

	status *cri.PodSandboxStatus // of, on the wire
	encoded
}

type container struct {
	sb *sandbox
	of *pleg.ContainerStatus

	status *cri.ContainerStatus // of, on the wire
	encoded
}

func (sb *sandbox) id() string       { return sb.status.Id }
func (sb *sandbox) uid() pleg.PodUID { return pleg.PodUID(sb.meta.Uid) }
func (c *container) id() string      { return c.status.Id }
func (c *container) exited() bool    { return c.of.State == pleg.StateExited }

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

func (s *state) addSandbox(sb *sandbox) {
	s.pods[sb.uid()] = sb
	s.sandboxes[sb.id()] = sb
	s.sandboxOrder = append(s.sandboxOrder, sb)
}

func (s *state) addContainer(c *container) {
	c.sb.containers = append(c.sb.containers, c)
	s.containers[c.of.ID] = c
	s.containerOrder = append(s.containerOrder, c)
}

func (s *state) dropSandbox(sb *sandbox) {
	delete(s.sandboxes, sb.id())
	s.sandboxOrder = remove(s.sandboxOrder, sb)
}

func (s *state) dropContainer(c *container) {
	delete(s.containers, c.of.ID)
	s.containerOrder = remove(s.containerOrder, c)
	c.sb.containers = remove(c.sb.containers, c)
}

func remove[T comparable](in []T, v T) []T {
	i := slices.Index(in, v)
	return slices.Delete(in, i, i+1)
}

// live returns the sandboxes that do not only linger, in the order of their creation.
func (s *state) live() []*sandbox {
	return slices.DeleteFunc(slices.Clone(s.sandboxOrder), func(sb *sandbox) bool { return sb.lingers })
}

func (s *state) pod(uid pleg.PodUID) *pleg.PodStatus {
	if sb := s.pods[uid]; sb != nil {
		return sb.pod()
	}
	return nil
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
	return rt.state.pod(uid)
}
