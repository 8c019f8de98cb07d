package cri

import (
	"cmp"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// hint returns what an event says.
func (c *Client) hint(e *runtimeapi.ContainerEventResponse) pleg.Hint {
	kind, sandbox := e.GetContainerEventType(), eventSandbox(e)
	h := pleg.Hint{
		UID: sandbox.podUID, Container: pleg.ContainerID(e.GetContainerId()), Sandbox: sandbox.ID,
		State: eventStates[kind], Removed: kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
		PodName: sandbox.podName, PodNamespace: sandbox.podNamespace,
	}
	labels := podLabels(e)
	if slices.ContainsFunc(labels, func(uid pleg.PodUID) bool { return uid != h.UID }) {
		c.unlabelledEvents.Add(1)
	}
	c.seen.add(h.Sandbox)
	h.UID = c.podOf(h, labels)
	if h.Container == h.Sandbox {
		h.Name, h.Attempt = sandbox.Name, sandbox.Attempt
		return h
	}
	if st := eventContainer(e); st != nil {
		it := containerItem(&runtimeapi.Container{
			Id: st.GetId(), Metadata: st.GetMetadata(), Labels: st.GetLabels(), Annotations: st.GetAnnotations(),
		})
		h.Name, h.Attempt = it.Name, it.Attempt
		h.PodName, h.PodNamespace = cmp.Or(h.PodName, it.podName), cmp.Or(h.PodNamespace, it.podNamespace)
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			h.Status = newContainerStatus(st, it.Container)
		}
	}
	return h
}

// podOf returns the pod of an event: the pod that it names, or else the pod that has its container
// or sandbox in the last list. A UID of two pods names neither.
func (c *Client) podOf(h pleg.Hint, labels []pleg.PodUID) pleg.PodUID {
	uid := cmp.Or(h.UID, cmp.Or(labels...))
	k := c.known.Load()
	if k == nil {
		return uid
	}
	if uid == "" || k.shared(uid) {
		return cmp.Or(k.owner(h.Container), k.owner(h.Sandbox))
	}
	return uid
}

// owner returns the pod of a sandbox or container; empty if it is not there.
func (k *known) owner(id pleg.ContainerID) pleg.PodUID {
	has := func(listed *pleg.Container) bool { return listed.ID == id }
	for _, p := range k.pods {
		if slices.ContainsFunc(p.Sandboxes, has) || slices.ContainsFunc(p.Containers, has) {
			return p.UID
		}
	}
	return ""
}

// eventStates are the states that events show. A kind that is not in this table is of a later
// version of CRI.
var eventStates = map[runtimeapi.ContainerEventType]pleg.State{
	runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: pleg.StateCreated,
	runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: pleg.StateRunning,
	runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: pleg.StateExited,
	runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: pleg.StateExited,
}

// eventSandbox returns the sandbox of an event as a list would have it.
func eventSandbox(e *runtimeapi.ContainerEventResponse) *item {
	s := e.GetPodSandboxStatus()
	return sandboxItem(&runtimeapi.PodSandbox{Id: s.GetId(), Metadata: s.GetMetadata(), Labels: s.GetLabels()})
}

// eventContainer returns the status of the container that an event is about, or nil unless the
// event has exactly one.
func eventContainer(e *runtimeapi.ContainerEventResponse) (found *runtimeapi.ContainerStatus) {
	for _, st := range e.GetContainersStatuses() {
		if st.GetId() != e.GetContainerId() {
			continue
		}
		if found != nil {
			return nil
		}
		found = st
	}
	return found
}

// podLabels returns the pod in the kubelet's label of everything in the event; empty where
// there is none.
func podLabels(e *runtimeapi.ContainerEventResponse) (uids []pleg.PodUID) {
	if s := e.GetPodSandboxStatus(); s != nil {
		uids = append(uids, pleg.PodUID(s.GetLabels()[labelPodUID]))
	}
	for _, c := range e.GetContainersStatuses() {
		uids = append(uids, pleg.PodUID(c.GetLabels()[labelPodUID]))
	}
	return uids
}
