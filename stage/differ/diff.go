package differ

import (
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

// transition returns the types of the events for a container's step from one kind to
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

// same reports whether two observations of a pod have no event between them. It is
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

// events returns what happened to a pod between two observations; either may be nil.
// The order is the kubelet's (getContainersFromPods): the old pod's containers, its
// sandboxes, then those that only the new pod has.
func events(old, cur *pleg.Pod, at time.Time) []pleg.Event {
	if same(old, cur) {
		return nil
	}
	before, after := kindsOf(old), kindsOf(cur)
	pod := cur
	if pod == nil {
		pod = old
	}
	var out []pleg.Event
	seen := make(map[pleg.ContainerID]struct{}, len(before)+len(after))
	step := func(c *pleg.Container, sandbox bool) {
		if _, ok := seen[c.ID]; ok {
			return
		}
		seen[c.ID] = struct{}{}
		for _, t := range transition(before[c.ID], after[c.ID]) {
			if before[c.ID] == absent && c.State == pleg.StateCreated {
				t = pleg.ContainerCreated
			}
			ev := podEvent(t, pod, at)
			ev.ContainerID, ev.ContainerName, ev.Attempt, ev.Sandbox = c.ID, c.Name, c.Attempt, sandbox
			out = append(out, ev)
		}
	}
	for _, p := range []*pleg.Pod{old, cur} {
		if p == nil {
			continue
		}
		for _, c := range p.Containers {
			step(c, false)
		}
		for _, s := range p.Sandboxes {
			step(s, true)
		}
	}
	return out
}

// kindsOf maps every id of the pod to its kind. If a runtime lists an id twice, the
// first counts, and a container before a sandbox, as in the kubelet.
func kindsOf(p *pleg.Pod) map[pleg.ContainerID]kind {
	if p == nil {
		return nil
	}
	kinds := make(map[pleg.ContainerID]kind, len(p.Containers)+len(p.Sandboxes))
	for _, list := range [][]*pleg.Container{p.Containers, p.Sandboxes} {
		for _, c := range list {
			if _, ok := kinds[c.ID]; !ok {
				kinds[c.ID] = kindOf(c.State)
			}
		}
	}
	return kinds
}

func podEvent(t pleg.EventType, pod *pleg.Pod, at time.Time) pleg.Event {
	return pleg.Event{Type: t, PodUID: pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, ObservedAt: at}
}

// skippedAttempts returns the number of containers that must have existed between
// two observations of a pod: the attempts between the last known one of a
// container's name and the next one seen.
func skippedAttempts(old, cur *pleg.Pod) int {
	if old == nil || cur == nil {
		return 0
	}
	skipped := 0
	for _, c := range cur.Containers {
		before, known := lastAttempt(old.Containers, c)
		if !known || hasContainer(old, c.ID) {
			continue
		}
		other, _ := lastAttempt(cur.Containers, c)
		skipped += int(c.Attempt - max(before, other) - 1)
	}
	return skipped
}

// lastAttempt returns the newest attempt before c among containers of its name.
func lastAttempt(containers []*pleg.Container, c *pleg.Container) (attempt uint32, known bool) {
	for _, other := range containers {
		if other.Name == c.Name && other.Attempt < c.Attempt {
			attempt, known = max(attempt, other.Attempt), true
		}
	}
	return attempt, known
}
