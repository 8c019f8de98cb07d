package cri

import (
	"cmp"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxAhead is how far the clock of a CRI event may be ahead of ours. Both clocks
// are the node's, so this only forgives a clock that was just set back.
const maxAhead = time.Second

// converter converts CRI events to hints. One goroutine uses it.
type converter struct {
	client *Client
	// owners maps the ids in the list of to their pods. It is built for the first
	// event that does not name its pod.
	owners map[pleg.ContainerID]pleg.PodUID
	of     *known
}

// hint returns what an event says. An event time after now is left out.
func (v *converter) hint(e *runtimeapi.ContainerEventResponse, now time.Time) pleg.Hint {
	sandbox := e.GetPodSandboxStatus()
	h := pleg.Hint{
		UID:       pleg.PodUID(sandbox.GetMetadata().GetUid()),
		At:        wallTime(e.GetCreatedAt()),
		Container: pleg.ContainerID(e.GetContainerId()),
		Sandbox:   pleg.ContainerID(sandbox.GetId()),
	}
	if h.At.After(now.Add(maxAhead)) {
		h.At = time.Time{}
	}
	var known bool
	h.State, h.Removed, known = eventState(e.GetContainerEventType())
	if !labelFindsAll(e, h.UID) {
		v.client.unlabelledEvents.Add(1)
	}
	v.client.seen.add(h.Sandbox) // before overlooked
	if h.UID == "" {
		h.UID = v.owner(e)
		return h
	}
	if v.overlooked(h.Sandbox) || !known || h.At.IsZero() || h.Container == "" || !wellFormed(e) {
		return h
	}
	if pod, st := eventPod(e, h); agrees(pod, h) {
		h.Pod, h.Status = pod, st
		h.AsOf = gatheredAfter(st, h.At)
	}
	return h
}

// overlooked reports whether a list in portions may lack the sandbox, because no list has
// shown its id. The list would take back what the event says of it.
func (v *converter) overlooked(sandbox pleg.ContainerID) bool {
	if !v.client.portions.Load() {
		return false
	}
	v.index()
	return v.owners[sandbox] == ""
}

// gatheredAfter returns a time before the statuses of an event of the given time were
// gathered. containerd first gathers them and then takes the time, and may be stopped in
// between. So only what the statuses show is certain to have happened before.
func gatheredAfter(st *pleg.PodStatus, event time.Time) time.Time {
	asOf := time.Unix(1, 0) // zero would mean the time of the event
	for _, s := range st.Sandboxes {
		asOf = later(asOf, s.CreatedAt, event)
	}
	for _, c := range st.Containers {
		for _, t := range []time.Time{c.CreatedAt, c.StartedAt, c.FinishedAt} {
			asOf = later(asOf, t, event)
		}
	}
	return asOf
}

// later returns the later of two times, but none after the limit.
func later(t, other, limit time.Time) time.Time {
	if other.After(t) && !other.After(limit) {
		return other
	}
	return t
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

// eventPod returns the sandbox of a well-formed event with its containers,
// without what the event says was removed.
func eventPod(e *runtimeapi.ContainerEventResponse, h pleg.Hint) (*pleg.Pod, *pleg.PodStatus) {
	s := e.GetPodSandboxStatus()
	name, namespace := s.GetMetadata().GetName(), s.GetMetadata().GetNamespace()
	pod := &pleg.Pod{UID: h.UID, Name: name, Namespace: namespace, Labels: s.GetLabels()}
	st := &pleg.PodStatus{UID: h.UID, Name: name, Namespace: namespace}
	if !h.Removed || h.Container != h.Sandbox {
		listed := &pleg.Container{
			ID: h.Sandbox, Name: name, Attempt: s.GetMetadata().GetAttempt(),
			State: sandboxState(s.GetState()), CreatedAt: wallTime(s.GetCreatedAt()),
		}
		pod.Sandboxes = []*pleg.Container{listed}
		st.Sandboxes = []*pleg.SandboxStatus{newSandboxStatus(s, listed)}
		st.IPs = podIPs(st.Sandboxes)
	}
	containers := e.GetContainersStatuses()
	slices.SortFunc(containers, func(a, b *runtimeapi.ContainerStatus) int {
		return cmp.Or(wallTime(b.GetCreatedAt()).Compare(wallTime(a.GetCreatedAt())), cmp.Compare(a.GetId(), b.GetId()))
	})
	for _, c := range containers {
		if h.Removed && c.GetId() == string(h.Container) {
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

// wellFormed reports whether each status of an event has an id that no other has,
// metadata, and a state of this version of CRI.
func wellFormed(e *runtimeapi.ContainerEventResponse) bool {
	s := e.GetPodSandboxStatus()
	if s.GetId() == "" || !defined(runtimeapi.PodSandboxState_name, int32(s.GetState())) {
		return false
	}
	seen := map[string]bool{s.GetId(): true}
	for _, c := range e.GetContainersStatuses() {
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
// happened. If they are older than that, or lack the container, the event is only
// a reason to list the pod.
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

// labelFindsAll reports whether everything in the event carries the kubelet's
// label of this pod.
func labelFindsAll(e *runtimeapi.ContainerEventResponse, uid pleg.PodUID) bool {
	if s := e.GetPodSandboxStatus(); s != nil && s.GetLabels()[labelPodUID] != string(uid) {
		return false
	}
	return !slices.ContainsFunc(e.GetContainersStatuses(), func(c *runtimeapi.ContainerStatus) bool {
		return c.GetLabels()[labelPodUID] != string(uid)
	})
}

// owner returns the pod of an event whose sandbox status does not name it, from
// the kubelet's labels or from the last list; empty if neither has it.
func (v *converter) owner(e *runtimeapi.ContainerEventResponse) pleg.PodUID {
	sandbox := e.GetPodSandboxStatus()
	if uid := sandbox.GetLabels()[labelPodUID]; uid != "" {
		return pleg.PodUID(uid)
	}
	for _, c := range e.GetContainersStatuses() {
		if uid := c.GetLabels()[labelPodUID]; uid != "" {
			return pleg.PodUID(uid)
		}
	}
	v.index()
	return cmp.Or(v.owners[pleg.ContainerID(e.GetContainerId())], v.owners[pleg.ContainerID(sandbox.GetId())])
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
