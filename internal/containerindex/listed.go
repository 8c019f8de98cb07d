package containerindex

import (
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// stuckAfter is how long the inspection of a pod may take before the list answers in its place.
// Healthy runtimes answer within milliseconds.
const stuckAfter = time.Second

// listed returns the first of some containers that the list shows in a pod whose inspection has
// failed, or that has waited for it since a time or an earlier one.
func (x *Index) listed(ids []pleg.ContainerID, since time.Time) (c lookup.Container, err error) {
	if x.source.Uninspected == nil {
		return lookup.Container{}, lookup.ErrNotYet
	}
	pods := x.source.Uninspected(since)
	for _, id := range ids {
		found := 0
		for _, pod := range pods {
			for n, listed := range slices.Concat(pod.Containers, pod.Sandboxes) {
				if begins(listed.ID, id) && listed.ID != c.ID {
					c = ofList(pod, listed, n >= len(pod.Containers))
					found++
				}
				if listed.ID == id {
					return c, nil
				}
			}
		}
		switch {
		case found > 1:
			return lookup.Container{}, fmt.Errorf("%w: several ids begin with %s: give more of it", pleg.ErrInvalidOption, id)
		case found == 1:
			return c, nil
		}
	}
	return lookup.Container{}, lookup.ErrNotYet
}

func ofList(pod *pleg.Pod, c *pleg.Container, sandbox bool) lookup.Container {
	return lookup.Container{
		ContainerStatus: pleg.ContainerStatus{ID: c.ID, Name: c.Name, Attempt: c.Attempt, State: c.State, CreatedAt: c.CreatedAt},
		Sandbox:         sandbox,
		PodUID:          pod.UID, PodName: pod.Name, PodNamespace: pod.Namespace, PodLabels: pod.Labels,
	}
}
