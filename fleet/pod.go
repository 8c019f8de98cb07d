package fleet

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// podState is a pod as it is after an event.
type podState struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Gone is true for a pod without containers and sandboxes.
	Gone bool `json:"gone,omitempty"`
	// Events are the last event of each container and sandbox that is not removed, in the order
	// of their numbers. What they have in common with the event of the message is left out.
	Events []pleg.Event `json:"events,omitempty"`
	Status *podStatus   `json:"status,omitempty"`
	// Error is the error of the last inspection, or says what was too large to publish.
	Error string `json:"error,omitempty"`
}

// podStatus is a [pleg.PodStatus] as it is published: without annotations, and with the labels of the
// pod alone.
type podStatus struct {
	IPs        []string          `json:"ips,omitempty"`
	Containers []containerStatus `json:"containers,omitempty"`
	Sandboxes  []sandboxStatus   `json:"sandboxes,omitempty"`
	ObservedAt time.Time         `json:"observedAt,omitzero"`
}

// containerStatus and sandboxStatus have the fields of the types in package pleg, in their order.
type containerStatus struct {
	ID          pleg.ContainerID  `json:"id"`
	Name        string            `json:"name"`
	Attempt     uint32            `json:"attempt,omitempty"`
	State       pleg.State        `json:"state"`
	CreatedAt   time.Time         `json:"createdAt,omitzero"`
	StartedAt   time.Time         `json:"startedAt,omitzero"`
	FinishedAt  time.Time         `json:"finishedAt,omitzero"`
	ExitCode    int32             `json:"exitCode,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Message     string            `json:"message,omitempty"`
	Image       string            `json:"image,omitempty"`
	ImageRef    string            `json:"imageRef,omitempty"`
	LogPath     string            `json:"logPath,omitempty"`
	Labels      map[string]string `json:"-"`
	Annotations map[string]string `json:"-"`
}

type sandboxStatus struct {
	ID          pleg.ContainerID  `json:"id"`
	Attempt     uint32            `json:"attempt,omitempty"`
	Ready       bool              `json:"ready"`
	CreatedAt   time.Time         `json:"createdAt,omitzero"`
	IPs         []string          `json:"ips,omitempty"`
	HostNetwork bool              `json:"hostNetwork,omitempty"`
	Labels      map[string]string `json:"-"`
	Annotations map[string]string `json:"-"`
}

func newestSandbox(status *pleg.PodStatus) *pleg.SandboxStatus {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return slices.MaxFunc(status.Sandboxes, func(a, b *pleg.SandboxStatus) int { return cmp.Compare(a.Attempt, b.Attempt) })
}

// status returns the status in a state; nil if there is none.
func (s *podState) status(of *pleg.Event) *pleg.PodStatus {
	if s.Status == nil {
		return nil
	}
	status := &pleg.PodStatus{UID: of.PodUID, Name: of.PodName, Namespace: of.PodNamespace, IPs: s.Status.IPs, ObservedAt: s.Status.ObservedAt}
	for _, c := range s.Status.Containers {
		status.Containers = append(status.Containers, new(pleg.ContainerStatus(c)))
	}
	for _, sandbox := range s.Status.Sandboxes {
		status.Sandboxes = append(status.Sandboxes, new(pleg.SandboxStatus(sandbox)))
	}
	if newest := newestSandbox(status); newest != nil {
		newest.Labels = s.Labels
	}
	return status
}

// restore adds to the events what they have in common with the one of the message.
func (s *podState) restore(ev *pleg.Event) {
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
