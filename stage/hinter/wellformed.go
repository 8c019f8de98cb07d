package hinter

import (
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// complete reports whether an event carries what the differ can work with; the
// runtime may be the embedder's.
func complete(h *pleg.Hint) bool {
	return h.Pod != nil && wellFormed(h.Pod, h.UID) && (h.Status == nil ||
		!slices.Contains(h.Status.Containers, nil) && !slices.Contains(h.Status.Sandboxes, nil))
}

func wellFormed(pod *pleg.Pod, uid pleg.PodUID) bool {
	return pod.UID == uid && !slices.Contains(pod.Containers, nil) && !slices.Contains(pod.Sandboxes, nil)
}
