package fleet

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podState is a pod as it is after an event, as a reader gets it.
type podState struct {
	Labels map[string]string `json:"labels"`
	// Gone is true for a pod without containers and sandboxes.
	Gone bool `json:"gone"`
	// Events are the last event of each container and sandbox that is not removed, in the order
	// of their numbers. What they have in common with the event of the message is left out.
	Events []pleg.Event `json:"events"`
	// Status has no annotations, and the labels of the pod alone.
	Status *pleg.PodStatus `json:"status"`
	// Error is the error of the last inspection, or says what was too large to publish.
	Error string `json:"error"`
}

func newestSandbox(status *pleg.PodStatus) *pleg.SandboxStatus {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return slices.MaxFunc(status.Sandboxes, func(a, b *pleg.SandboxStatus) int { return cmp.Compare(a.Attempt, b.Attempt) })
}

// restore adds to the events and to the status what they have in common with the event of the message.
func (s *podState) restore(ev *pleg.Event) {
	if status := s.Status; status != nil {
		status.UID, status.Name, status.Namespace = ev.PodUID, ev.PodName, ev.PodNamespace
		if newest := newestSandbox(status); newest != nil {
			newest.Labels = s.Labels
		}
	}
	for i := range s.Events {
		last := &s.Events[i]
		last.PodUID, last.PodName, last.PodNamespace = ev.PodUID, ev.PodName, ev.PodNamespace
	}
}

// maxText is the length of one text of an event in bytes. CRI bounds no name, and the server refuses what
// is larger than its max_payload, however often it is sent.
const maxText = 4 << 10

// fit cuts the texts of an event that are too long, and reports whether there were any. What is
// cut ends with a hash of the whole, so that two ids stay two.
func fit(ev *pleg.Event) (cut bool) {
	for _, text := range []*string{
		(*string)(&ev.PodUID), &ev.PodName, &ev.PodNamespace, (*string)(&ev.ContainerID), &ev.ContainerName, &ev.Reason, &ev.Image,
	} {
		if len(*text) > maxText {
			*text, cut = strings.ToValidUTF8((*text)[:maxText], "")+"~"+hash(*text), true
		}
	}
	return cut
}
