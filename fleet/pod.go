package fleet

import (
	"cmp"
	"fmt"
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

// apply adds an event.
func (s *podState) apply(ev pleg.Event) {
	i := slices.IndexFunc(s.Events, func(last pleg.Event) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			s.Events = slices.Delete(s.Events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			ev.Replayed, ev.Status = false, nil
			s.Events = append(s.Events, ev)
		}
	case pleg.ContainerCorrected:
		if i >= 0 && s.Events[i].Type == pleg.ContainerDied {
			s.Events[i].ExitCode, s.Events[i].Reason, s.Events[i].FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
		}
	}
}

// setStatus adds the result of the last inspection.
func (s *podState) setStatus(status *pleg.PodStatus, failed error) {
	s.Error, s.Status = "", nil
	if failed != nil {
		s.Error = failed.Error()
	}
	if status == nil {
		return
	}
	if newest := newestSandbox(status); newest != nil && newest.Labels != nil {
		s.Labels = newest.Labels
	}
	s.Status = &podStatus{IPs: status.IPs, ObservedAt: status.ObservedAt}
	for _, c := range status.Containers {
		s.Status.Containers = append(s.Status.Containers, containerStatus(*c))
	}
	for _, sandbox := range status.Sandboxes {
		s.Status.Sandboxes = append(s.Status.Sandboxes, sandboxStatus(*sandbox))
	}
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

// without returns the state without what its events have in common with an event.
func (s *podState) without(ev *pleg.Event) *podState {
	short := *s
	short.Gone = len(s.Events) == 0
	short.Events = slices.Clone(s.Events)
	for i := range short.Events {
		last := &short.Events[i]
		last.PodUID, last.PodName, last.PodNamespace = "", "", ""
		if last.Epoch == ev.Epoch {
			last.Epoch = ""
		}
	}
	return &short
}

// restore reverses without.
func (s *podState) restore(ev *pleg.Event) {
	for i := range s.Events {
		last := &s.Events[i]
		last.PodUID, last.PodName, last.PodNamespace = ev.PodUID, ev.PodName, ev.PodNamespace
		last.Epoch = cmp.Or(last.Epoch, ev.Epoch)
	}
}

// encodePod returns a message about a pod of at most limit bytes. What it leaves out for that, it says.
func encodePod(source string, k kind, ev pleg.Event, s *podState, limit int) (body []byte, cut string, err error) {
	part := s.without(&ev)
	for _, leaveOut := range []func(){
		func() {},
		func() { part.Labels = nil },
		func() { part.Status = nil },
		func() { part.Events = nil },
	} {
		leaveOut()
		if body, err = encode(source, k, data{Event: ev, Pod: part}); err != nil || len(body) <= limit {
			break
		}
		cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(body))
		part.Error = cut
	}
	return body, cut, err
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
