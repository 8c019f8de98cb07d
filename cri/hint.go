package cri

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxAhead is how far the clock of an event may be ahead of ours. Both are the
// node's, so that this only forgives a clock that was just set back.
const maxAhead = time.Second

// converter makes hints of events. It is used by one goroutine.
type converter struct {
	client *Client
	// owners are the pods of the ids that a list has; of what list, and built
	// only for the first event that does not say it.
	owners map[pleg.ContainerID]pleg.PodUID
	of     *known
}

// hint returns what an event says. now bounds the time that it may bear.
func (v *converter) hint(event *runtimeapi.ContainerEventResponse, now time.Time) pleg.Hint {
	sandbox := event.GetPodSandboxStatus()
	h := pleg.Hint{
		UID:       pleg.PodUID(sandbox.GetMetadata().GetUid()),
		At:        wallTime(event.GetCreatedAt()),
		Container: pleg.ContainerID(event.GetContainerId()),
		Sandbox:   pleg.ContainerID(sandbox.GetId()),
	}
	if h.At.After(now.Add(maxAhead)) {
		h.At = time.Time{}
	}
	var known bool
	h.State, h.Removed, known = eventState(event.GetContainerEventType())
	v.noteStrangers(event, h.UID)
	v.client.sightings.add(h.Sandbox)
	if h.UID == "" {
		h.UID = v.owner(event)
	}
	if !known || h.At.IsZero() || h.Container == "" || sandbox.GetMetadata().GetUid() == "" {
		return h
	}
	if pod, st := eventPod(event, h); pod != nil && agrees(pod, h) {
		h.Pod, h.Status = pod, st
	}
	return h
}

// eventState returns what a kind of event says of its container; ok is false for
// a kind that this version does not know.
func eventState(kind runtimeapi.ContainerEventType) (state pleg.State, removed, ok bool) {
	switch kind {
	case runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT:
		return pleg.StateCreated, false, true
	case runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT:
		return pleg.StateRunning, false, true
	case runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT:
		return pleg.StateExited, false, true
	case runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT:
		return pleg.StateExited, true, true
	default:
		return pleg.StateUnknown, false, false
	}
}

// eventPod returns the sandbox of an event with its containers, without what the
// event says to be removed; nil if one of the statuses is malformed.
func eventPod(event *runtimeapi.ContainerEventResponse, h pleg.Hint) (*pleg.Pod, *pleg.PodStatus) {
	s := event.GetPodSandboxStatus()
	meta := s.GetMetadata()
	if h.Sandbox == "" || !defined(runtimeapi.PodSandboxState_name, int32(s.GetState())) || !wellFormed(event, h.Sandbox) {
		return nil, nil
	}
	pod := &pleg.Pod{UID: h.UID, Name: meta.GetName(), Namespace: meta.GetNamespace(), Labels: s.GetLabels()}
	st := &pleg.PodStatus{UID: h.UID, Name: pod.Name, Namespace: pod.Namespace}
	if !h.Removed || h.Container != h.Sandbox {
		listed := &pleg.Container{
			ID: h.Sandbox, Name: meta.GetName(), Attempt: meta.GetAttempt(),
			State: sandboxState(s.GetState()), CreatedAt: wallTime(s.GetCreatedAt()),
		}
		pod.Sandboxes = []*pleg.Container{listed}
		st.Sandboxes = []*pleg.SandboxStatus{newSandboxStatus(s, listed)}
		st.IPs = podIPs(st.Sandboxes)
	}
	statuses := slices.SortedFunc(slices.Values(event.GetContainersStatuses()), func(a, b *runtimeapi.ContainerStatus) int {
		return cmp.Or(wallTime(b.GetCreatedAt()).Compare(wallTime(a.GetCreatedAt())), cmp.Compare(a.GetId(), b.GetId()))
	})
	for _, c := range statuses {
		if h.Removed && pleg.ContainerID(c.GetId()) == h.Container {
			continue
		}
		listed := &pleg.Container{
			ID: pleg.ContainerID(c.GetId()), SandboxID: h.Sandbox, Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(),
			State: containerState(c.GetState()), CreatedAt: wallTime(c.GetCreatedAt()),
		}
		pod.Containers = append(pod.Containers, listed)
		st.Containers = append(st.Containers, newContainerStatus(c, listed))
	}
	return pod, st
}

// wellFormed reports whether each container's status tells whose it is and has a
// state with a name, and no id is there twice.
func wellFormed(event *runtimeapi.ContainerEventResponse, sandbox pleg.ContainerID) bool {
	seen := map[string]bool{string(sandbox): true}
	for _, c := range event.GetContainersStatuses() {
		if c.GetId() == "" || seen[c.GetId()] || c.GetMetadata() == nil || !defined(runtimeapi.ContainerState_name, int32(c.GetState())) {
			return false
		}
		seen[c.GetId()] = true
	}
	return true
}

func defined[N any](names map[int32]N, value int32) bool {
	_, ok := names[value]
	return ok
}

// agrees reports whether the statuses show at least what the event says
// happened. Statuses that lag behind, or lack the container, are no more than a
// reason to ask.
func agrees(pod *pleg.Pod, h pleg.Hint) bool {
	if h.Removed {
		return h.Container != h.Sandbox || len(pod.Containers) == 0
	}
	for _, c := range slices.Concat(pod.Sandboxes, pod.Containers) {
		if c.ID == h.Container {
			return c.State >= h.State
		}
	}
	return false
}

// noteStrangers counts events of pods that the kubelet's label does not find:
// from now on it proves nothing, until a list has shown what there is.
func (v *converter) noteStrangers(event *runtimeapi.ContainerEventResponse, uid pleg.PodUID) {
	strange := func(labels map[string]string) bool { return labels[labelPodUID] != string(uid) }
	if event.GetPodSandboxStatus() != nil && strange(event.GetPodSandboxStatus().GetLabels()) ||
		slices.ContainsFunc(event.GetContainersStatuses(), func(c *runtimeapi.ContainerStatus) bool { return strange(c.GetLabels()) }) {
		v.client.strangers.Add(1)
	}
}

// owner finds out the pod of an event whose sandbox status does not tell it,
// from the kubelet's labels or from the last list; empty if it cannot.
func (v *converter) owner(event *runtimeapi.ContainerEventResponse) pleg.PodUID {
	if uid := event.GetPodSandboxStatus().GetLabels()[labelPodUID]; uid != "" {
		return pleg.PodUID(uid)
	}
	for _, c := range event.GetContainersStatuses() {
		if uid := c.GetLabels()[labelPodUID]; uid != "" {
			return pleg.PodUID(uid)
		}
	}
	v.index()
	return cmp.Or(v.owners[pleg.ContainerID(event.GetContainerId())], v.owners[pleg.ContainerID(event.GetPodSandboxStatus().GetId())])
}

// index builds the owners of the newest list.
func (v *converter) index() {
	k := v.client.known.Load()
	if k == v.of || k == nil {
		return
	}
	v.of, v.owners = k, make(map[pleg.ContainerID]pleg.PodUID)
	for _, p := range k.pods {
		for _, c := range slices.Concat(p.Sandboxes, p.Containers) {
			v.owners[c.ID] = p.UID
		}
	}
}
