package simruntime

import (
	"fmt"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is guarded by Runtime.mu. Its proto messages never change once they are
// set, so that readers may encode them after they release the lock.
type state struct {
	generation uint64 // grows with every visible change
	lastTime   int64  // last result of now, Unix ns
	nextIP     int
	sandboxes  map[string]*sandbox
	containers map[string]*container
	pods       map[string]*pod

	// In order of creation.
	podOrder       []*pod
	sandboxOrder   []*sandbox
	containerOrder []*container

	lingering []*sandbox // deleted but still listed, in order of the field gone
}

// now returns the wall clock time, and never the same time twice: lists are
// sorted by it.
func (s *state) now() int64 {
	s.lastTime = max(time.Now().UnixNano(), s.lastTime+1)
	return s.lastTime
}

type pod struct {
	uid       string
	sandboxes []*sandbox // oldest first
}

type sandbox struct {
	id          string
	meta        *cri.PodSandboxMetadata
	ready       bool
	createdAt   int64
	ips         []string
	labels      map[string]string
	annotations map[string]string
	gone        int64 // time of leaving the lists once deleted, else zero
	containers  []*container

	item   *cri.PodSandbox
	status *cri.PodSandboxStatus
	encoded
}

type container struct {
	id          string
	sb          *sandbox
	meta        *cri.ContainerMetadata
	image       *cri.ImageSpec
	imageRef    string
	labels      map[string]string
	annotations map[string]string
	logPath     string
	state       cri.ContainerState
	createdAt   int64
	startedAt   int64
	finishedAt  int64
	exitCode    int32
	reason      string

	item   *cri.Container
	status *cri.ContainerStatus
	encoded
}

func (sb *sandbox) encode() {
	if sb.element == nil {
		sb.element = marshal(&cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{sb.item}})
		sb.answer = marshal(&cri.PodSandboxStatusResponse{Status: sb.status})
	}
}

func (c *container) encode() {
	if c.element == nil {
		c.element = marshal(&cri.ListContainersResponse{Containers: []*cri.Container{c.item}})
		c.answer = marshal(&cri.ContainerStatusResponse{Status: c.status})
	}
}

// render makes the messages that clients see from the fields. The encoding is
// left to encode.
func (sb *sandbox) render() {
	st := cri.PodSandboxState_SANDBOX_NOTREADY
	network := &cri.PodSandboxNetworkStatus{}
	if sb.ready {
		st = cri.PodSandboxState_SANDBOX_READY
		for i, ip := range sb.ips {
			if i == 0 {
				network.Ip = ip
			} else {
				network.AdditionalIps = append(network.AdditionalIps, &cri.PodIP{Ip: ip})
			}
		}
	}
	sb.item = &cri.PodSandbox{
		Id: sb.id, Metadata: sb.meta, State: st, CreatedAt: sb.createdAt,
		Labels: sb.labels, Annotations: sb.annotations,
	}
	sb.status = &cri.PodSandboxStatus{
		Id: sb.id, Metadata: sb.meta, State: st, CreatedAt: sb.createdAt, Network: network,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{
			Pid: cri.NamespaceMode_CONTAINER,
		}}},
		Labels: sb.labels, Annotations: sb.annotations,
	}
	sb.element = nil
}

func (c *container) render() {
	ref := c.imageRef
	c.item = &cri.Container{
		Id: c.id, PodSandboxId: c.sb.id, Metadata: c.meta, Image: c.image, ImageRef: ref, ImageId: ref,
		State: c.state, CreatedAt: c.createdAt, Labels: c.labels, Annotations: c.annotations,
	}
	c.status = &cri.ContainerStatus{
		Id: c.id, Metadata: c.meta, Image: c.image, ImageRef: ref, ImageId: ref,
		State: c.state, CreatedAt: c.createdAt, StartedAt: c.startedAt, FinishedAt: c.finishedAt,
		ExitCode: c.exitCode, Reason: c.reason,
		Labels: c.labels, Annotations: c.annotations, LogPath: c.logPath,
	}
	c.element = nil
}

func (s *state) addSandbox(sb *sandbox) {
	uid := sb.meta.GetUid()
	p := s.pods[uid]
	if p == nil {
		p = &pod{uid: uid}
		s.pods[uid] = p
		s.podOrder = append(s.podOrder, p)
	}
	p.sandboxes = append(p.sandboxes, sb)
	s.sandboxes[sb.id] = sb
	s.sandboxOrder = append(s.sandboxOrder, sb)
}

func (s *state) addContainer(c *container) {
	c.sb.containers = append(c.sb.containers, c)
	s.containers[c.id] = c
	s.containerOrder = append(s.containerOrder, c)
}

func (s *state) dropSandbox(sb *sandbox) {
	delete(s.sandboxes, sb.id)
	s.sandboxOrder = remove(s.sandboxOrder, sb)
	p := s.pods[sb.meta.GetUid()]
	p.sandboxes = remove(p.sandboxes, sb)
	if len(p.sandboxes) == 0 {
		delete(s.pods, p.uid)
		s.podOrder = remove(s.podOrder, p)
	}
}

func (s *state) dropContainer(c *container) {
	delete(s.containers, c.id)
	c.element = []byte{} // not listed any more: nothing to encode
	s.containerOrder = remove(s.containerOrder, c)
	c.sb.containers = remove(c.sb.containers, c)
}

func remove[T comparable](in []T, v T) []T {
	i := slices.Index(in, v)
	return slices.Delete(in, i, i+1)
}

// newIPs returns the next addresses of the pod network.
func (s *state) newIPs(dual bool) []string {
	s.nextIP++
	ips := []string{fmt.Sprintf("10.88.%d.%d", s.nextIP>>8&255, s.nextIP&255)}
	if dual {
		ips = append(ips, fmt.Sprintf("fd00:88::%x", s.nextIP))
	}
	return ips
}
