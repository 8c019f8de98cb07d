package differ

import (
	"cmp"
	"iter"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

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

func containerIn(list []*pleg.Container, id pleg.ContainerID) *pleg.Container {
	if i := slices.IndexFunc(list, func(c *pleg.Container) bool { return c.ID == id }); i >= 0 {
		return list[i]
	}
	return nil
}

// behind reports whether a comes before b in a container's life: created, running,
// exited. An unknown state comes before all of them.
func behind(a, b *pleg.Container) bool { return cmp.Compare(a.State, b.State) < 0 }

// coversPod reports whether the status of an event that shows the whole pod has all of it too.
func coversPod(h *pleg.Hint, pod *pleg.Pod) bool {
	if h.Status == nil || pod == nil {
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
