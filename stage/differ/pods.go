package differ

import (
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// kind is a container's state for the purpose of events: the kubelet's
// plegContainerState.
type kind uint8

const (
	absent kind = iota
	changed
	running
	exited
	never // a removal, which the first listing cannot show
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

// kindsOf returns the kind of each container of the pod.
func kindsOf(pod *pleg.Pod) map[pleg.ContainerID]kind {
	kinds := make(map[pleg.ContainerID]kind)
	each(pod, func(c *pleg.Container, _ bool) { kinds[c.ID] = kindOf(c.State) })
	return kinds
}

// same reports whether no event lies between two answers about a pod. It is
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

// equal reports whether two answers about a pod that exists show the same.
func equal(old, cur *pleg.Pod) bool {
	if old == nil || cur == nil {
		return false
	}
	like := func(a, b *pleg.Container) bool { return a.ID == b.ID && a.State == b.State }
	return slices.EqualFunc(old.Containers, cur.Containers, like) && slices.EqualFunc(old.Sandboxes, cur.Sandboxes, like)
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

// kindIn returns the kind of a container in a pod, which may be nil.
func kindIn(pod *pleg.Pod, id pleg.ContainerID) kind {
	if c := containerOf(pod, id); c != nil {
		return kindOf(c.State)
	}
	return absent
}

// isBeyondCreated reports whether the pod shows that a container has started, or may have.
func isBeyondCreated(pod *pleg.Pod, id pleg.ContainerID) bool {
	c := containerOf(pod, id)
	return c != nil && c.State != pleg.StateCreated
}

// hasEnded reports whether no container of a pod runs, or may run.
func hasEnded(pod *pleg.Pod) bool {
	ended := true
	each(pod, func(c *pleg.Container, _ bool) { ended = ended && c.State == pleg.StateExited })
	return ended
}

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
