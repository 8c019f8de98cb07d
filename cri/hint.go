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
func (v *converter) hint(e *event, now time.Time) pleg.Hint {
	h := pleg.Hint{At: wallTime(e.createdAt), Container: e.container}
	if e.sandbox != nil {
		h.UID, h.Sandbox = e.sandbox.uid, e.sandbox.status.ID
	}
	if h.At.After(now.Add(maxAhead)) {
		h.At = time.Time{}
	}
	var known bool
	h.State, h.Removed, known = eventState(e.kind)
	v.noteStrangers(e, h.UID)
	v.client.sightings.add(h.Sandbox)
	if h.UID == "" {
		h.UID = v.owner(e)
	}
	if !known || h.At.IsZero() || h.Container == "" || e.sandbox == nil || e.sandbox.uid == "" {
		return h
	}
	if pod, st := eventPod(e, h); pod != nil && agrees(pod, h) {
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
func eventPod(e *event, h pleg.Hint) (*pleg.Pod, *pleg.PodStatus) {
	s := e.sandbox
	if !s.whole || !wellFormed(e) {
		return nil, nil
	}
	pod := &pleg.Pod{UID: h.UID, Name: s.name, Namespace: s.namespace, Labels: s.status.Labels}
	st := &pleg.PodStatus{UID: h.UID, Name: s.name, Namespace: s.namespace}
	if !h.Removed || h.Container != h.Sandbox {
		pod.Sandboxes, st.Sandboxes, st.IPs = s.listed, s.statuses, s.ips
	}
	if len(e.containers) == 0 {
		return pod, st
	}
	slices.SortFunc(e.containers, newestOfEvent)
	pod.Containers = make([]*pleg.Container, 0, len(e.containers))
	st.Containers = make([]*pleg.ContainerStatus, 0, len(e.containers))
	for _, c := range e.containers {
		if h.Removed && c.status.ID == h.Container {
			continue
		}
		pod.Containers = append(pod.Containers, c.listed)
		st.Containers = append(st.Containers, c.status)
	}
	if len(pod.Containers) == 0 {
		pod.Containers, st.Containers = nil, nil
	}
	return pod, st
}

// fewContainers are so many that it is quicker to compare each with each.
const fewContainers = 16

// wellFormed reports whether each container's status tells whose it is and has a
// state with a name, and no id is there twice.
func wellFormed(e *event) bool {
	var seen map[pleg.ContainerID]bool
	if len(e.containers) > fewContainers {
		seen = make(map[pleg.ContainerID]bool, len(e.containers))
	}
	for i, c := range e.containers {
		if !c.whole || c.status.ID == e.sandbox.status.ID {
			return false
		}
		if seen == nil && slices.ContainsFunc(e.containers[:i], func(o *eventContainer) bool { return o.status.ID == c.status.ID }) || seen[c.status.ID] {
			return false
		}
		if seen != nil {
			seen[c.status.ID] = true
		}
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
func (v *converter) noteStrangers(e *event, uid pleg.PodUID) {
	strange := func(labels map[string]string) bool { return labels[labelPodUID] != string(uid) }
	if e.sandbox != nil && strange(e.sandbox.status.Labels) ||
		slices.ContainsFunc(e.containers, func(c *eventContainer) bool { return strange(c.status.Labels) }) {
		v.client.strangers.Add(1)
	}
}

// owner finds out the pod of an event whose sandbox status does not tell it,
// from the kubelet's labels or from the last list; empty if it cannot.
func (v *converter) owner(e *event) pleg.PodUID {
	var sandbox pleg.ContainerID
	if e.sandbox != nil {
		sandbox = e.sandbox.status.ID
		if uid := e.sandbox.status.Labels[labelPodUID]; uid != "" {
			return pleg.PodUID(uid)
		}
	}
	for _, c := range e.containers {
		if uid := c.status.Labels[labelPodUID]; uid != "" {
			return pleg.PodUID(uid)
		}
	}
	v.index()
	return cmp.Or(v.owners[e.container], v.owners[sandbox])
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
