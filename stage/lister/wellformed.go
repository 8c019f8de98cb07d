package lister

import (
	"context"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// wellFormed leaves out what no stage could place: pods that are nil or have no
// UID, and nil containers. A list without such things is returned as it is.
func (l *Lister) wellFormed(ctx context.Context, pods []*pleg.Pod) []*pleg.Pod {
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
	l.metrics.malformed.Add(float64(skipped))
	l.log.WarnContext(ctx, "skipped malformed items in the runtime's list", "items", skipped)
	return kept
}

func malformed(pod *pleg.Pod) bool {
	return pod == nil || pod.UID == "" ||
		slices.Contains(pod.Containers, nil) || slices.Contains(pod.Sandboxes, nil)
}

func withoutNil(containers []*pleg.Container) []*pleg.Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c *pleg.Container) bool { return c == nil })
}
