package serial

import (
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// gone is the state of a container that is not in a list.
const gone pleg.State = 255

// Events returns the changes from old to current. Either may be nil. First come those of the old
// pod's containers, then of its sandboxes, then those of containers and sandboxes that only the
// current pod contains.
func Events(old, current *pleg.Pod) []pleg.Event {
	var events []pleg.Event
	seen := make(map[pleg.ContainerID]bool)
	for _, pod := range []*pleg.Pod{old, current} {
		if pod == nil {
			continue
		}
		for _, list := range [][]*pleg.Container{pod.Containers, pod.Sandboxes} {
			for _, c := range list {
				if !seen[c.ID] {
					seen[c.ID] = true
					events = append(events, containerEvents(old, current, c.ID)...)
				}
			}
		}
	}
	return events
}

func containerEvents(old, current *pleg.Pod, id pleg.ContainerID) []pleg.Event {
	before, sandbox := find(old, id)
	after, isSandbox := find(current, id)
	types := transition(stateOf(before), stateOf(after))
	pod, c := current, after
	if c == nil {
		pod, c = old, before
	} else {
		sandbox = isSandbox
	}
	events := make([]pleg.Event, 0, len(types))
	for _, t := range types {
		events = append(events, pleg.Event{
			Type:          t,
			PodUID:        pod.UID,
			PodName:       pod.Name,
			PodNamespace:  pod.Namespace,
			ContainerID:   c.ID,
			ContainerName: c.Name,
			Attempt:       c.Attempt,
			Sandbox:       sandbox,
		})
	}
	return events
}

// transition returns the events of a container that went from one state to
// another. It follows generateEvents of the kubelet's generic.go.
func transition(from, to pleg.State) []pleg.EventType {
	switch {
	case from == to:
		return nil
	case to == pleg.StateRunning:
		return []pleg.EventType{pleg.ContainerStarted}
	case to == pleg.StateExited:
		return []pleg.EventType{pleg.ContainerDied}
	case to == gone && from == pleg.StateExited:
		return []pleg.EventType{pleg.ContainerRemoved}
	case to == gone:
		return []pleg.EventType{pleg.ContainerDied, pleg.ContainerRemoved}
	default:
		return []pleg.EventType{stage.ContainerChanged}
	}
}

// stateOf maps created to unknown, as the kubelet does.
func stateOf(c *pleg.Container) pleg.State {
	switch {
	case c == nil:
		return gone
	case c.State == pleg.StateRunning, c.State == pleg.StateExited:
		return c.State
	default:
		return pleg.StateUnknown
	}
}

func find(pod *pleg.Pod, id pleg.ContainerID) (c *pleg.Container, sandbox bool) {
	if pod == nil {
		return nil, false
	}
	for _, c := range pod.Containers {
		if c.ID == id {
			return c, false
		}
	}
	for _, c := range pod.Sandboxes {
		if c.ID == id {
			return c, true
		}
	}
	return nil, false
}

// podSync uses the names of the newest list with the pod.
func podSync(pod *pleg.Pod) pleg.Event {
	return pleg.Event{
		Type:         pleg.PodSync,
		PodUID:       pod.UID,
		PodName:      pod.Name,
		PodNamespace: pod.Namespace,
	}
}
