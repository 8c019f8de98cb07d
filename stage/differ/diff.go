package differ

import (
	"cmp"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// kind is a container's state for the purpose of events: the kubelet's
// plegContainerState.
type kind uint8

const (
	absent kind = iota
	changed
	running
	exited
	gone // only for events: the removal is announced
)

func kindOf(s pleg.State) kind {
	switch s {
	case pleg.StateRunning:
		return running
	case pleg.StateExited:
		return exited
	default:
		return changed
	}
}

// transition returns the types of the events for a container that goes from one kind to
// another (kubelet v1.37, generateEvents).
func transition(from, to kind) []pleg.EventType {
	switch {
	case from == to:
		return nil
	case to == running:
		return []pleg.EventType{pleg.ContainerStarted}
	case to == exited:
		return []pleg.EventType{pleg.ContainerDied}
	case to == changed:
		return []pleg.EventType{stage.ContainerChanged}
	case from == exited:
		return []pleg.EventType{pleg.ContainerRemoved}
	default:
		return []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}
	}
}

// same reports whether two answers about a pod have no event between them. It is
// the whole cost of an unchanged pod, so it allocates nothing. It may return false if
// only the order differs; events then finds none.
func same(old, cur *pleg.Pod) bool {
	if old == cur {
		return true
	}
	if old == nil || cur == nil {
		return false
	}
	return slices.EqualFunc(old.Containers, cur.Containers, sameContainer) &&
		slices.EqualFunc(old.Sandboxes, cur.Sandboxes, sameContainer)
}

func sameContainer(a, b *pleg.Container) bool {
	return a.ID == b.ID && kindOf(a.State) == kindOf(b.State)
}

// events returns what happened to a pod between two answers; either may be nil. passed are
// the containers that have come and gone in between. The order is the kubelet's
// (getContainersFromPods): the old pod's containers, its sandboxes, then those that only the
// new pod has. A container that is first seen exited may have run.
func events(old, cur *pleg.Pod, passed []passed, at time.Time) []pleg.Event {
	if same(old, cur) && len(passed) == 0 {
		return nil
	}
	pod := cmp.Or(cur, old)
	before, after := kindsOf(old), kindsOf(cur) // a pod may have thousands of sandboxes
	var out []pleg.Event
	tell := func(c *pleg.Container, sandbox bool) {
		from, to := before[c.ID], after[c.ID]
		for _, t := range transition(from, to) {
			if from == absent && c.State == pleg.StateCreated {
				t = pleg.ContainerCreated
			}
			if t == pleg.ContainerDied && to == exited && !sandbox && !wasStarted(old, c.ID) {
				out = append(out, containerEvent(stage.ContainerRan, pod, c, sandbox, at))
			}
			out = append(out, containerEvent(t, pod, c, sandbox, at))
		}
	}
	each(old, tell)
	for _, p := range passed {
		for _, t := range p.told(cur) {
			out = append(out, containerEvent(t, p.pod, p.container, p.sandbox, at))
		}
	}
	each(cur, func(c *pleg.Container, sandbox bool) {
		if _, ok := before[c.ID]; !ok {
			tell(c, sandbox)
		}
	})
	return out
}

// wasStarted reports whether a container may have been reported as started: it was seen running,
// exited, or in a state that says nothing.
func wasStarted(old *pleg.Pod, id pleg.ContainerID) bool {
	c := containerOf(old, id)
	return c != nil && c.State != pleg.StateCreated
}

// containerOf returns the container or sandbox with this id, or nil; the pod may be nil.
func containerOf(pod *pleg.Pod, id pleg.ContainerID) (found *pleg.Container) {
	each(pod, func(c *pleg.Container, _ bool) {
		if found == nil && c.ID == id {
			found = c
		}
	})
	return found
}

func hasContainer(pod *pleg.Pod, id pleg.ContainerID) bool { return containerOf(pod, id) != nil }

// each calls f with the containers of a pod, then with its sandboxes; the pod may be nil.
func each(pod *pleg.Pod, f func(c *pleg.Container, sandbox bool)) {
	if pod == nil {
		return
	}
	for _, c := range pod.Containers {
		f(c, false)
	}
	for _, s := range pod.Sandboxes {
		f(s, true)
	}
}

// kindsOf returns the kind of each container of the pod.
func kindsOf(pod *pleg.Pod) map[pleg.ContainerID]kind {
	kinds := make(map[pleg.ContainerID]kind)
	each(pod, func(c *pleg.Container, _ bool) { kinds[c.ID] = kindOf(c.State) })
	return kinds
}

func containerEvent(t pleg.EventType, pod *pleg.Pod, c *pleg.Container, sandbox bool, at time.Time) pleg.Event {
	ev := podEvent(t, pod, at)
	ev.ContainerID, ev.ContainerName, ev.Attempt, ev.Sandbox = c.ID, c.Name, c.Attempt, sandbox
	return ev
}

func podEvent(t pleg.EventType, pod *pleg.Pod, at time.Time) pleg.Event {
	return pleg.Event{Type: t, PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, ObservedAt: at}
}
