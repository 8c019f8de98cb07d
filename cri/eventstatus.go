package cri

import (
	"cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// eventSandbox is the status of a sandbox in an event. It is never changed once
// built: many events may share it.
type eventSandbox struct {
	uid             pleg.PodUID
	name, namespace string
	status          *pleg.SandboxStatus
	// listed and statuses are the sandbox alone.
	listed   []*pleg.Container
	statuses []*pleg.SandboxStatus
	ips      []string
	// whole is set if the status has an id and a state with a name.
	whole bool
}

func newEventSandbox(s *runtimeapi.PodSandboxStatus) *eventSandbox {
	meta := s.GetMetadata()
	listed := &pleg.Container{
		ID: pleg.ContainerID(s.GetId()), Name: meta.GetName(), Attempt: meta.GetAttempt(),
		State: sandboxState(s.GetState()), CreatedAt: wallTime(s.GetCreatedAt()),
	}
	status := newSandboxStatus(s, listed)
	statuses := []*pleg.SandboxStatus{status}
	return &eventSandbox{
		uid: pleg.PodUID(meta.GetUid()), name: meta.GetName(), namespace: meta.GetNamespace(),
		status: status, listed: []*pleg.Container{listed}, statuses: statuses, ips: podIPs(statuses),
		whole: s.GetId() != "" && defined(runtimeapi.PodSandboxState_name, int32(s.GetState())),
	}
}

func (s *eventSandbox) maps() labelled { return labelled{s.status.Labels, s.status.Annotations} }

// eventContainer is the status of a container in an event. It is never changed
// once built.
type eventContainer struct {
	listed *pleg.Container
	status *pleg.ContainerStatus
	// whole is set if the status tells whose it is and has a state with a name.
	whole bool
}

// newEventContainer makes one in this sandbox, which may be nil.
func newEventContainer(c *runtimeapi.ContainerStatus, sandbox *eventSandbox) *eventContainer {
	listed := &pleg.Container{
		ID: pleg.ContainerID(c.GetId()), Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
		State: containerState(c.GetState()), CreatedAt: wallTime(c.GetCreatedAt()),
	}
	if sandbox != nil {
		listed.SandboxID = sandbox.status.ID
	}
	return &eventContainer{
		listed: listed, status: newContainerStatus(c, listed),
		whole: c.GetId() != "" && c.GetMetadata() != nil && defined(runtimeapi.ContainerState_name, int32(c.GetState())),
	}
}

// is reports whether the container has this id, which is not empty.
func (c *eventContainer) is(id []byte) bool { return len(id) > 0 && string(c.status.ID) == string(id) }

func (c *eventContainer) maps() labelled { return labelled{c.status.Labels, c.status.Annotations} }

// newestOfEvent orders the containers of a pod.
func newestOfEvent(a, b *eventContainer) int {
	return cmp.Or(b.listed.CreatedAt.Compare(a.listed.CreatedAt), cmp.Compare(a.listed.ID, b.listed.ID))
}
