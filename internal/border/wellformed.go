package border

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// wellFormed leaves out pods that are nil or have no UID, and nil containers. A
// list without such items is returned as it is.
func (r *Runtime) wellFormed(ctx context.Context, pods []*pleg.Pod) []*pleg.Pod {
	bad := slices.IndexFunc(pods, malformed)
	if bad < 0 {
		return pods
	}
	kept := slices.Clone(pods[:bad])
	skipped := 0
	for _, pod := range pods[bad:] {
		switch {
		case pod == nil || pod.UID == "":
			skipped++
			continue
		case malformed(pod):
			clean := *pod
			clean.Containers = withoutNil(pod.Containers)
			clean.Sandboxes = withoutNil(pod.Sandboxes)
			skipped += len(pod.Containers) + len(pod.Sandboxes) - len(clean.Containers) - len(clean.Sandboxes)
			pod = &clean
		}
		kept = append(kept, pod)
	}
	r.malformed.Add(float64(skipped))
	r.log.WarnContext(ctx, "skipped malformed items in the runtime's list", "items", skipped)
	return kept
}

func malformed(pod *pleg.Pod) bool { return pod == nil || pod.UID == "" || hasNil(pod) }

func hasNil(pod *pleg.Pod) bool {
	return slices.Contains(pod.Containers, nil) || slices.Contains(pod.Sandboxes, nil)
}

func withoutNil(containers []*pleg.Container) []*pleg.Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c *pleg.Container) bool { return c == nil })
}

func isWellFormed(pod *pleg.Pod, uid pleg.PodUID) bool { return pod.UID == uid && !hasNil(pod) }

// checkStatus refuses a status that is not one of the pod. It may leave the UID out.
func checkStatus(status *pleg.PodStatus, uid pleg.PodUID) error {
	switch {
	case status == nil:
		return errors.New("the runtime returned neither a status nor an error")
	case status.UID != "" && status.UID != uid:
		return fmt.Errorf("the runtime returned the status of pod %s", status.UID)
	case slices.Contains(status.Containers, nil) || slices.Contains(status.Sandboxes, nil):
		return errors.New("the runtime returned a status with a nil container or sandbox")
	}
	return nil
}
