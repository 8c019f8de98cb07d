package simruntime

import (
	"slices"
	"strconv"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// state is all that the runtime knows. It is guarded by Runtime.mu. The proto
// messages it refers to are never changed once they are set, so that readers
// may encode them after the lock is released.
type state struct {
	generation uint64 // moves on with every visible change
	lastTime   int64  // last time handed out, Unix ns
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

func newState() state {
	return state{
		sandboxes:  map[string]*sandbox{},
		containers: map[string]*container{},
		pods:       map[string]*pod{},
	}
}

// now is the wall clock, made strictly increasing: the order of two objects
// must follow from their times, as "newest first" is promised.
func (s *state) now() int64 {
	s.lastTime = max(time.Now().UnixNano(), s.lastTime+1)
	return s.lastTime
}

type pod struct {
	uid       string
	seq       int64
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
	handler     string
	logDir      string
	gone        int64 // time of leaving the lists once deleted, else zero
	containers  []*container

	item   *cri.PodSandbox
	status *cri.PodSandboxStatus
	enc    []byte // item as an element of a list response
	answer []byte // status as the response to PodSandboxStatus
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
	message     string

	item   *cri.Container
	status *cri.ContainerStatus
	enc    []byte
	answer []byte
}

func (sb *sandbox) encode() {
	if sb.enc == nil {
		sb.enc, sb.answer = encodeElement(sb.item), encodeElement(sb.status)
	}
}

func (c *container) encode() {
	if c.enc == nil {
		c.enc, c.answer = encodeElement(c.item), encodeElement(c.status)
	}
}

// render makes the messages that clients see from the fields. The encoding is
// left to encode.
func (sb *sandbox) render() {
	st := cri.PodSandboxState_SANDBOX_NOTREADY
	network := &cri.PodSandboxNetworkStatus{}
	if sb.ready {
		st = cri.PodSandboxState_SANDBOX_READY
		network = networkStatus(sb.ips)
	}
	sb.item = &cri.PodSandbox{
		Id: sb.id, Metadata: sb.meta, State: st, CreatedAt: sb.createdAt,
		Labels: sb.labels, Annotations: sb.annotations, RuntimeHandler: sb.handler,
	}
	sb.status = &cri.PodSandboxStatus{
		Id: sb.id, Metadata: sb.meta, State: st, CreatedAt: sb.createdAt, Network: network,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{
			Pid: cri.NamespaceMode_CONTAINER,
		}}},
		Labels: sb.labels, Annotations: sb.annotations, RuntimeHandler: sb.handler,
	}
	sb.enc = nil
}

func networkStatus(ips []string) *cri.PodSandboxNetworkStatus {
	if len(ips) == 0 {
		return &cri.PodSandboxNetworkStatus{}
	}
	network := &cri.PodSandboxNetworkStatus{Ip: ips[0]}
	for _, ip := range ips[1:] {
		network.AdditionalIps = append(network.AdditionalIps, &cri.PodIP{Ip: ip})
	}
	return network
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
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Labels: c.labels, Annotations: c.annotations, LogPath: c.logPath,
	}
	c.enc = nil
}

func (s *state) addSandbox(sb *sandbox) {
	uid := sb.meta.GetUid()
	p := s.pods[uid]
	if p == nil {
		p = &pod{uid: uid, seq: sb.createdAt}
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
	s.sandboxOrder = without(s.sandboxOrder, sb, func(o *sandbox) int64 { return o.createdAt })
	p := s.pods[sb.meta.GetUid()]
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(o *sandbox) bool { return o == sb })
	if len(p.sandboxes) == 0 {
		delete(s.pods, p.uid)
		s.podOrder = without(s.podOrder, p, func(o *pod) int64 { return o.seq })
	}
}

func (s *state) dropContainer(c *container) {
	delete(s.containers, c.id)
	c.enc = []byte{} // will not be listed: nothing to encode
	s.containerOrder = without(s.containerOrder, c, func(o *container) int64 { return o.createdAt })
	c.sb.containers = slices.DeleteFunc(c.sb.containers, func(o *container) bool { return o == c })
}

// without removes v from a slice ordered by its strictly increasing key.
func without[T comparable](in []T, v T, key func(T) int64) []T {
	i, found := slices.BinarySearchFunc(in, key(v), func(e T, k int64) int {
		switch k2 := key(e); {
		case k2 < k:
			return -1
		case k2 > k:
			return 1
		}
		return 0
	})
	if !found || in[i] != v {
		panic("simruntime: object missing from its creation order")
	}
	return slices.Delete(in, i, i+1)
}

// newIPs hands out the next addresses of the pod network.
func (s *state) newIPs(dual bool) []string {
	s.nextIP++
	hi, lo := strconv.Itoa(s.nextIP>>8&255), strconv.Itoa(s.nextIP&255)
	ips := []string{"10.88." + hi + "." + lo}
	if dual {
		ips = append(ips, "fd00:88::"+strconv.FormatInt(int64(s.nextIP), 16))
	}
	return ips
}
