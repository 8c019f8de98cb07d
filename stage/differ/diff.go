package differ

import (
	"cmp"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

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

func containerEvent(t pleg.EventType, pod *pleg.Pod, c *pleg.Container, sandbox bool, at time.Time) pleg.Event {
	ev := podEvent(t, pod, at)
	ev.ContainerID, ev.ContainerName, ev.Attempt, ev.Sandbox = c.ID, c.Name, c.Attempt, sandbox
	return ev
}

func podEvent(t pleg.EventType, pod *pleg.Pod, at time.Time) pleg.Event {
	return pleg.Event{Type: t, PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, ObservedAt: at}
}
