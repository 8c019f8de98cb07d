package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// record is what the publisher knows of a pod.
type record struct {
	name, namespace string
	// stored is when its last message was acknowledged.
	stored time.Time
	// events are the events of a podState.
	events []pleg.Event
	labels []byte
	// status is nil unless a message is being made.
	status *pleg.PodStatus
	failed string
}

// apply adds an event.
func (r *record) apply(ev pleg.Event) {
	i := slices.IndexFunc(r.events, func(last pleg.Event) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			r.events = slices.Delete(r.events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			r.events = append(r.events, ev)
		}
	case pleg.ContainerCorrected:
		if i >= 0 && r.events[i].Type == pleg.ContainerDied {
			last := &r.events[i]
			last.ExitCode, last.Reason, last.FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
		}
	}
}

// setStatus adds the result of the last inspection.
func (r *record) setStatus(status *pleg.PodStatus, failed error) {
	r.failed, r.status = "", status
	if failed != nil {
		r.failed = failed.Error()
	}
	if status == nil {
		return
	}
	if newest := newestSandbox(status); newest != nil && newest.Labels != nil {
		r.labels, _ = json.Marshal(newest.Labels) // texts never fail
	}
}

// encode returns a message about the pod of at most limit bytes. What it leaves out for that, it says.
func (r *record) encode(to object, source string, k kind, ev *pleg.Event, limit int) (body []byte, cut string, err error) {
	head, err := encode(to, source, k, ev)
	if err != nil {
		return nil, "", err
	}
	failed := r.failed
	for parts := 3; ; parts-- {
		o := append(head.name("pod"), '{').bool("gone", len(r.events) == 0)
		if parts > 0 {
			o = append(o.name("events"), '[')
			for i := range r.events {
				o = append(append(o.name(""), '{').event(&r.events[i], false), '}')
			}
			o = append(o, ']')
		}
		if parts > 1 && r.status != nil {
			o = append(append(o.name("status"), '{').status(r.status), '}')
		}
		if parts > 2 && r.labels != nil {
			o = append(o.name("labels"), r.labels...)
		}
		body = append(o.text("error", failed), "}}}"...)
		if len(body) <= limit || parts == 0 {
			return body, cut, nil
		}
		cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(body))
		failed = cut
	}
}
