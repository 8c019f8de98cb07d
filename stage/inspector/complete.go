package inspector

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// complete returns a copy of the runtime's status, with the time of its
// observation. If the pod has lost its addresses, it keeps the last known ones
// (kubelet v1.37, GenericPLEG.getPodIPs; there a failed inspection loses them).
// A container that the observation did not show is left out: if the next observation does
// not show it either, the pod is not inspected, and the cache would keep the container.
func complete(c stage.Change, s, last *pleg.PodStatus) *pleg.PodStatus {
	status := *s
	status.UID, status.ObservedAt = c.UID, c.At
	status.Containers = observed(status.Containers, c.Pod.Containers, func(s *pleg.ContainerStatus) pleg.ContainerID { return s.ID })
	status.Sandboxes = observed(status.Sandboxes, c.Pod.Sandboxes, func(s *pleg.SandboxStatus) pleg.ContainerID { return s.ID })
	if last != nil && len(status.IPs) == 0 && !status.SandboxReady() {
		status.IPs = last.IPs
	}
	return &status
}

// observed returns a copy without the statuses of containers that are not listed.
func observed[S any](statuses []S, has []*pleg.Container, id func(S) pleg.ContainerID) []S {
	return slices.DeleteFunc(slices.Clone(statuses), func(s S) bool {
		return !slices.ContainsFunc(has, func(c *pleg.Container) bool { return c.ID == id(s) })
	})
}

// fillFromStatus copies the image and the time of the start from the status into the events of
// containers, and the exit code, reason and time of an end into the events of the end and of its
// correction. If the container was removed before this inspection, an earlier status may contain
// these fields. A [stage.ContainerRan] becomes a start if the status says when it was, and
// otherwise is dropped.
func (i *Inspector) fillFromStatus(events []pleg.Event, status, last *pleg.PodStatus) []pleg.Event {
	kept := events[:0]
	for _, ev := range events {
		c := i.statusFor(&ev, status, last)
		if ev.Type == stage.ContainerRan {
			if c == nil || c.StartedAt.IsZero() {
				continue
			}
			ev.Type = pleg.ContainerStarted
		}
		if c != nil {
			ev.Image, ev.StartedAt = c.Image, c.StartedAt
			if (ev.Type == pleg.ContainerDied || ev.Type == pleg.ContainerCorrected) && c.State == pleg.StateExited {
				// A copy, because the log would keep the whole status alive.
				code := c.ExitCode
				ev.ExitCode, ev.Reason, ev.FinishedAt = &code, c.Reason, c.FinishedAt
			}
		}
		kept = append(kept, ev)
	}
	return kept
}

// statusFor returns the status that an event of a container is filled from; nil if there is
// none.
func (i *Inspector) statusFor(ev *pleg.Event, status, last *pleg.PodStatus) *pleg.ContainerStatus {
	if ev.Sandbox || ev.Type == pleg.ContainerRemoved {
		return nil
	}
	c := status.Container(ev.ContainerID)
	if hasEnded(c) || ev.Type != pleg.ContainerDied && ev.Type != stage.ContainerRan {
		return c
	}
	// The last inspection may know more than an earlier event. The id may have been another container's.
	if was := last.Container(ev.ContainerID); hasEnded(was) {
		return was
	}
	if final := i.opts.Cache.GetRemoved(ev.ContainerID); final != nil && (c == nil || final.StartedAt.Equal(c.StartedAt)) {
		return final
	}
	return c
}

// corrections returns an event for each container whose status completes the event of an earlier
// change: because the status before contradicted its list, or because the exit code or the reason
// has changed since.
func (i *Inspector) corrections(c stage.Change, before contradicted, last, status *pleg.PodStatus) []pleg.Event {
	var events []pleg.Event
	for _, now := range status.Containers {
		was := last.Container(now.ID)
		agrees := before.find(now.ID) >= 0 && i.contradicted[c.UID].find(now.ID) < 0 && now.State >= pleg.StateRunning
		changed := was != nil && was.State == pleg.StateExited && now.State == pleg.StateExited && (was.ExitCode != now.ExitCode || was.Reason != now.Reason)
		told := slices.ContainsFunc(c.Events, func(ev pleg.Event) bool { return ev.ContainerID == now.ID && ev.Type != stage.ContainerChanged })
		if told || !agrees && !changed {
			continue
		}
		events = append(events, pleg.Event{
			Type: pleg.ContainerCorrected, PodUID: c.UID, PodName: c.Pod.Name, PodNamespace: c.Pod.Namespace,
			ContainerID: now.ID, ContainerName: now.Name, Attempt: now.Attempt, ObservedAt: c.At,
		})
	}
	return events
}

// keepRemoved makes the cache keep the final statuses of containers that the pod no longer
// contains. Both statuses may be nil: the pod is new, or gone.
func (i *Inspector) keepRemoved(last, status *pleg.PodStatus) {
	if last == nil {
		return
	}
	for _, c := range last.Containers {
		if c.State == pleg.StateExited && status.Container(c.ID) == nil {
			i.opts.Cache.KeepRemoved(c)
		}
	}
}

// networkEvents returns an event for each sandbox whose network came up, or never
// did, between two statuses of a pod (NetworkSetupCompleted and NetworkFailed of the
// kubelet's PLEG proposal). A sandbox that was dead before this process began may
// have had an address, so it gets no event.
func networkEvents(c stage.Change, last, status *pleg.PodStatus, began time.Time) []pleg.Event {
	var events []pleg.Event
	for _, s := range status.Sandboxes {
		before := last.Sandbox(s.ID)
		var t pleg.EventType
		switch {
		case s.HostNetwork:
			continue
		case up(s) && !up(before):
			t = pleg.NetworkSetupCompleted
		case !s.Ready && len(s.IPs) == 0 && before != nil && before.Ready && !up(before),
			!s.Ready && len(s.IPs) == 0 && before == nil && createdAfter(s, began):
			t = pleg.NetworkFailed
		default:
			continue
		}
		events = append(events, pleg.Event{
			Type: t, PodUID: c.UID, PodName: c.Pod.Name, PodNamespace: c.Pod.Namespace,
			ContainerID: s.ID, ContainerName: c.Pod.Name, Attempt: s.Attempt, Sandbox: true, ObservedAt: c.At,
			// Replayed, as the sandbox itself: it existed when the pipeline began.
			Replayed: slices.ContainsFunc(c.Events, func(ev pleg.Event) bool { return ev.Replayed && ev.ContainerID == s.ID }),
		})
	}
	return events
}

// createdAfter reports whether a sandbox was created after a time. containerd 1.6 reports no time
// for a sandbox that it could not finish.
func createdAfter(s *pleg.SandboxStatus, t time.Time) bool {
	return s.CreatedAt.IsZero() || s.CreatedAt.After(t)
}

func up(s *pleg.SandboxStatus) bool { return s != nil && s.Ready && len(s.IPs) > 0 }
