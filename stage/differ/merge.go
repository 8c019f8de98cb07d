package differ

import (
	"cmp"
	"iter"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// merge returns what is known of a pod after a CRI event about one of its
// sandboxes. Containers only move forward: an event that was built a moment before
// a listing and dated a moment after it takes nothing back. merge returns nil if
// nothing is left of the pod.
func merge(have *pleg.Pod, h *pleg.Hint, removed func(pleg.ContainerID) bool) *pleg.Pod {
	if have == nil {
		have = &pleg.Pod{}
	}
	pod := *h.Pod
	if len(pod.Sandboxes) == 0 && have.UID != "" {
		pod.UID, pod.Name, pod.Namespace, pod.Labels = have.UID, have.Name, have.Namespace, have.Labels
	}
	if have.Labels != nil && isOlder(h.Pod.Sandboxes, have.Sandboxes) {
		pod.Labels = have.Labels // a pod's labels are those of its newest sandbox
	}
	pod.Containers = mergeContainers(have.Containers, h.Pod.Containers, removed)
	pod.Sandboxes = mergeContainers(have.Sandboxes, h.Pod.Sandboxes, removed)
	if len(pod.Containers) == 0 && len(pod.Sandboxes) == 0 {
		return nil
	}
	return &pod
}

// isOlder reports whether another sandbox is newer than those of an event.
func isOlder(ofEvent, others []*pleg.Container) bool {
	return len(ofEvent) > 0 && slices.ContainsFunc(others, func(s *pleg.Container) bool {
		return !slices.ContainsFunc(ofEvent, func(e *pleg.Container) bool { return !s.CreatedAt.After(e.CreatedAt) })
	})
}

func mergeContainers(have, news []*pleg.Container, removed func(pleg.ContainerID) bool) []*pleg.Container {
	var out []*pleg.Container
	for _, c := range have {
		if i := slices.IndexFunc(news, func(n *pleg.Container) bool { return n.ID == c.ID }); i >= 0 && !behind(news[i], c) {
			c = news[i]
		}
		out = append(out, c)
	}
	for _, n := range news {
		if !slices.ContainsFunc(have, func(c *pleg.Container) bool { return c.ID == n.ID }) {
			out = append(out, n)
		}
	}
	out = slices.DeleteFunc(out, func(c *pleg.Container) bool { return removed(c.ID) })
	slices.SortStableFunc(out, func(a, b *pleg.Container) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return out
}

// containers ranges over the containers and sandboxes of a pod; it may be nil.
func containers(pod *pleg.Pod) iter.Seq[*pleg.Container] {
	return func(yield func(*pleg.Container) bool) {
		if pod == nil {
			return
		}
		for _, list := range [][]*pleg.Container{pod.Containers, pod.Sandboxes} {
			for _, c := range list {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// containerOf returns the container or sandbox with this id, or nil.
func containerOf(pod *pleg.Pod, id pleg.ContainerID) *pleg.Container {
	for c := range containers(pod) {
		if c.ID == id {
			return c
		}
	}
	return nil
}

func hasContainer(pod *pleg.Pod, id pleg.ContainerID) bool { return containerOf(pod, id) != nil }

// behind reports whether a comes before b in a container's life: created, running,
// exited.
func behind(a, b *pleg.Container) bool { return cmp.Compare(a.State, b.State) < 0 }

// coversPod reports whether the event's status is that of the whole pod.
func coversPod(h *pleg.Hint, pod *pleg.Pod) bool {
	if h.Status == nil || pod == nil || len(pod.Sandboxes) != len(h.Pod.Sandboxes) || len(pod.Containers) != len(h.Pod.Containers) {
		return false
	}
	for _, c := range pod.Containers {
		if s := h.Status.Container(c.ID); s == nil || s.State != c.State {
			return false
		}
	}
	for _, c := range pod.Sandboxes {
		if !slices.ContainsFunc(h.Status.Sandboxes, func(s *pleg.SandboxStatus) bool {
			return s.ID == c.ID && s.Ready == (c.State == pleg.StateRunning)
		}) {
			return false
		}
	}
	return true
}
