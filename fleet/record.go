package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// record is what the publisher knows of a pod. It keeps the JSON of what many messages have.
type record struct {
	name, namespace string
	// stored is when its last message was acknowledged.
	stored time.Time
	// events are those of a podState.
	events         []lastEvent
	labels, status []byte
	failed         string
}

type lastEvent struct {
	pleg.Event

	text []byte
}

func newLastEvent(ev pleg.Event) lastEvent {
	last := lastEvent{Event: ev}
	ev.PodUID, ev.PodName, ev.PodNamespace, ev.Replayed = "", "", "", false
	last.text, _ = json.Marshal(ev) // it has no type that fails
	return last
}

// apply adds an event.
func (r *record) apply(ev pleg.Event) {
	i := slices.IndexFunc(r.events, func(last lastEvent) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			r.events = slices.Delete(r.events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			r.events = append(r.events, newLastEvent(ev))
		}
	case pleg.ContainerCorrected:
		if i >= 0 && r.events[i].Type == pleg.ContainerDied {
			last := r.events[i].Event
			last.ExitCode, last.Reason, last.FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
			r.events[i] = newLastEvent(last)
		}
	}
}

// setStatus adds the result of the last inspection.
func (r *record) setStatus(status *pleg.PodStatus, failed error) (err error) {
	r.failed, r.status = "", nil
	if failed != nil {
		r.failed = failed.Error()
	}
	if status == nil {
		return nil
	}
	if newest := newestSandbox(status); newest != nil && newest.Labels != nil {
		if r.labels, err = json.Marshal(newest.Labels); err != nil {
			return err
		}
	}
	published := podStatus{
		IPs: status.IPs, ObservedAt: status.ObservedAt,
		Containers: make([]containerStatus, len(status.Containers)), Sandboxes: make([]sandboxStatus, len(status.Sandboxes)),
	}
	for i, c := range status.Containers {
		published.Containers[i] = containerStatus(*c)
	}
	for i, sandbox := range status.Sandboxes {
		published.Sandboxes[i] = sandboxStatus(*sandbox)
	}
	r.status, err = json.Marshal(&published)
	return err
}

// encode returns a message about the pod of at most limit bytes. What it leaves out for that, it says.
func (r *record) encode(source string, k kind, ev pleg.Event, limit int) (body []byte, cut string, err error) {
	head, err := encode(source, k, data{Event: ev})
	if err != nil {
		return nil, "", err
	}
	events := []byte{'['}
	for i, last := range r.events {
		if i > 0 {
			events = append(events, ',')
		}
		events = append(events, last.text...)
	}
	events = append(events, ']')
	parts := []struct {
		name string
		text []byte
	}{{"events", events}, {"status", r.status}, {"labels", r.labels}}
	for failed := r.failed; ; failed = cut {
		body = append(make([]byte, 0, len(head)+len(events)+len(r.status)+len(r.labels)+len(failed)+100), head[:len(head)-2]...)
		body = append(body, `,"pod":{"gone":`...)
		body = strconv.AppendBool(body, len(r.events) == 0)
		for _, part := range parts {
			if part.text != nil {
				body = append(append(append(append(body, `,"`...), part.name...), `":`...), part.text...)
			}
		}
		if failed != "" {
			text, _ := json.Marshal(failed)
			body = append(append(body, `,"error":`...), text...)
		}
		body = append(body, "}}}"...)
		if len(body) <= limit || len(parts) == 0 {
			return body, cut, nil
		}
		cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(body))
		parts = parts[:len(parts)-1]
	}
}
