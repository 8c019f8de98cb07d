package differ

import (
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// containerOf returns the container or sandbox with this id, or nil; the pod may be nil.
func containerOf(pod *pleg.Pod, id pleg.ContainerID) *pleg.Container {
	if pod == nil {
		return nil
	}
	has := func(c *pleg.Container) bool { return c.ID == id }
	if n := slices.IndexFunc(pod.Containers, has); n >= 0 {
		return pod.Containers[n]
	}
	if n := slices.IndexFunc(pod.Sandboxes, has); n >= 0 {
		return pod.Sandboxes[n]
	}
	return nil
}

func hasContainer(pod *pleg.Pod, id pleg.ContainerID) bool { return containerOf(pod, id) != nil }
