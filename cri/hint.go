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

// hint returns what an event says. An event time after now is left out.
func (c *Client) hint(e *runtimeapi.ContainerEventResponse, now time.Time) pleg.Hint {
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
	kind := e.GetContainerEventType()
	state, known := eventStates[kind]
	h.State, h.Removed = state, kind == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT
	labels := podLabels(e)
	if slices.ContainsFunc(labels, func(uid pleg.PodUID) bool { return uid != h.UID }) {
		c.unlabelledEvents.Add(1)
	}
	c.seen.add(h.Sandbox) // before overlooked
	if h.UID == "" {
		h.UID = cmp.Or(cmp.Or(labels...), c.owner(h.Container), c.owner(h.Sandbox))
		return h
	}
	if c.overlooked(h.Sandbox) || !known || h.At.IsZero() || h.Container == "" || !wellFormed(e) {
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
func (c *Client) overlooked(sandbox pleg.ContainerID) bool {
	return c.degraded.Load() != nil && c.owner(sandbox) == ""
}

// owner returns the pod of a sandbox or container in the last list; empty if it is not there.
func (c *Client) owner(id pleg.ContainerID) pleg.PodUID {
	k := c.known.Load()
	if k == nil {
		return ""
	}
	has := func(listed *pleg.Container) bool { return listed.ID == id }
	for _, p := range k.pods {
		if slices.ContainsFunc(p.Sandboxes, has) || slices.ContainsFunc(p.Containers, has) {
			return p.UID
		}
	}
	return ""
}

// gatheredAfter returns a time before the statuses of an event of the given time were
// gathered. containerd first gathers them and then takes the time, and may be stopped in
// between. So only what the statuses show is certain to have happened before.
func gatheredAfter(st *pleg.PodStatus, event time.Time) time.Time {
	var shown []time.Time
	for _, s := range st.Sandboxes {
		shown = append(shown, s.CreatedAt)
	}
	for _, c := range st.Containers {
		shown = append(shown, c.CreatedAt, c.StartedAt, c.FinishedAt)
	}
	asOf := time.Unix(1, 0) // zero would mean the time of the event
	for _, t := range shown {
		if t.After(asOf) && !t.After(event) {
			asOf = t
		}
	}
	return asOf
}

// eventStates are the states that events show. A kind that is not in this table is of a later
// version of CRI.
var eventStates = map[runtimeapi.ContainerEventType]pleg.State{
	runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: pleg.StateCreated,
	runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: pleg.StateRunning,
	runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: pleg.StateExited,
	runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: pleg.StateExited,
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
			State: sandboxStates[s.GetState()], CreatedAt: wallTime(s.GetCreatedAt()),
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
			State: containerStates[c.GetState()], CreatedAt: wallTime(c.GetCreatedAt()),
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
