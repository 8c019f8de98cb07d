package simruntime

import (
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is guarded by Runtime.mu. Its proto messages never change once they are
// set, so that readers may encode them after they release the lock.
type state struct {
	lastTime   int64 // last result of now, Unix ns
	nextIP     int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	pods       map[string]*sandbox // by the UID: one for each pod

	// In order of creation.
	sandboxOrder   []*sandbox
	containerOrder []*container
}

// now returns the wall clock time, and never the same time twice: lists are
// sorted by it.
func (s *state) now() int64 {
	s.lastTime = max(time.Now().UnixNano(), s.lastTime+1)
	return s.lastTime
}

type sandbox struct {
	lingers    bool // deleted, and still listed
	containers []*container

	item   *cri.PodSandbox
	status *cri.PodSandboxStatus
	encoded
}

type container struct {
	sb *sandbox

	item   *cri.Container
	status *cri.ContainerStatus
	encoded
}

func (sb *sandbox) id() string    { return sb.status.Id }
func (sb *sandbox) uid() string   { return sb.status.Metadata.Uid }
func (sb *sandbox) ready() bool   { return sb.status.State == cri.PodSandboxState_SANDBOX_READY }
func (c *container) id() string   { return c.status.Id }
func (c *container) name() string { return c.status.Metadata.Name }
func (c *container) exited() bool { return c.status.State == cri.ContainerState_CONTAINER_EXITED }

// show makes what clients see of a sandbox from its status.
func (sb *sandbox) show(st *cri.PodSandboxStatus) {
	sb.status = st
	sb.item = &cri.PodSandbox{
		Id: st.Id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
	}
	sb.element = marshal(&cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{sb.item}})
	sb.answer = marshal(&cri.PodSandboxStatusResponse{Status: st})
}

// show makes what clients see of a container from its status.
func (c *container) show(st *cri.ContainerStatus) {
	c.status = st
	c.item = &cri.Container{
		Id: st.Id, PodSandboxId: c.sb.id(), Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef, ImageId: st.ImageId,
		State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations,
	}
	c.element = marshal(&cri.ListContainersResponse{Containers: []*cri.Container{c.item}})
	c.answer = marshal(&cri.ContainerStatusResponse{Status: st})
}

func (s *state) addSandbox(sb *sandbox) {
	s.pods[sb.uid()] = sb
	s.sandboxes[sb.id()] = sb
	s.sandboxOrder = append(s.sandboxOrder, sb)
}

func (s *state) addContainer(c *container) {
	c.sb.containers = append(c.sb.containers, c)
	s.containers[c.id()] = c
	s.containerOrder = append(s.containerOrder, c)
}

func (s *state) dropSandbox(sb *sandbox) {
	delete(s.sandboxes, sb.id())
	s.sandboxOrder = remove(s.sandboxOrder, sb)
}

func (s *state) dropContainer(c *container) {
	delete(s.containers, c.id())
	s.containerOrder = remove(s.containerOrder, c)
	c.sb.containers = remove(c.sb.containers, c)
}

func remove[T comparable](in []T, v T) []T {
	i := slices.Index(in, v)
	return slices.Delete(in, i, i+1)
}
