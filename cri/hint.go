package cri

import (
	"cmp"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// hint makes the hint of an event.
func (c *Client) hint(e *runtimeapi.ContainerEventResponse) pleg.Hint {
	kind, status := e.GetContainerEventType(), e.GetPodSandboxStatus()
	sandbox := sandboxItem(&runtimeapi.PodSandbox{Id: status.GetId(), Metadata: status.GetMetadata(), Labels: status.GetLabels()})
	h := pleg.Hint{
		UID: cmp.Or(sandbox.podUID, sandbox.label), Container: pleg.ContainerID(e.GetContainerId()), Sandbox: sandbox.ID,
		State: eventStates[kind], Removed: kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
		PodName: sandbox.podName, PodNamespace: sandbox.podNamespace,
	}
	h.UID = c.podOf(h, e)
	named := h.Container == h.Sandbox
	if named {
		h.Name, h.Attempt = sandbox.Name, sandbox.Attempt
	}
	for _, st := range e.GetContainersStatuses() {
		own, ended := st.GetId() == e.GetContainerId(), st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		if named && own || !own && !ended {
			continue
		}
		it := containerItem(&runtimeapi.Container{
			Id: st.GetId(), Metadata: st.GetMetadata(), Labels: st.GetLabels(), Annotations: st.GetAnnotations(),
		})
		if !own {
			h.Others = append(h.Others, newContainerStatus(st, it.Container))
			continue
		}
		named, h.Name, h.Attempt = true, it.Name, it.Attempt
		h.PodName, h.PodNamespace = cmp.Or(h.PodName, it.podName), cmp.Or(h.PodNamespace, it.podNamespace)
		if ended {
			h.Status = newContainerStatus(st, it.Container)
		}
	}
	return h
}

// podOf returns the pod of an event: the pod that it names, or else the pod of its container
// or sandbox in the last list. A UID of two pods names neither.
func (c *Client) podOf(h pleg.Hint, e *runtimeapi.ContainerEventResponse) pleg.PodUID {
	uid := h.UID
	for _, st := range e.GetContainersStatuses() {
		uid = cmp.Or(uid, pleg.PodUID(st.GetLabels()[labelPodUID]))
	}
	last := c.last.Load()
	if last == nil {
		return uid
	}
	shared := func(p *pleg.Pod) bool { return strings.HasPrefix(string(p.UID), string(uid)+"@") }
	if uid != "" && !slices.ContainsFunc(last.pods, shared) {
		return uid
	}
	return cmp.Or(last.owner(h.Container), last.owner(h.Sandbox))
}

// owner returns the pod of a sandbox or container; empty if it is not listed.
func (l *lastList) owner(id pleg.ContainerID) pleg.PodUID {
	has := func(listed *pleg.Container) bool { return listed.ID == id }
	for _, p := range l.pods {
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
