package fleet

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// record is what the publisher knows of a pod. What the messages of a pod have in common is encoded once.
type record struct {
	uid             pleg.PodUID
	name, namespace string
	// stored is when its last message was acknowledged, sequence the number of that, and count how many messages the server has
	// of it.
	stored   time.Time
	sequence uint64
	count    uint64
	// events are the last one of each container, as in a podState.
	events []lastEvent
	// status is the newest one, of which details and labels are published.
	status          *pleg.PodStatus
	details, labels object
}

type lastEvent struct {
	pleg.Event

	fields object
}

// apply adds an event, and the status that came with it. The fields are those of inner.
func (r *record) apply(ev *pleg.Event, fields object) {
	r.setStatus(ev.Status)
	i := slices.IndexFunc(r.events, func(last lastEvent) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			r.events = slices.Delete(r.events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			r.events = append(r.events, lastEvent{*ev, fields})
		}
	case pleg.ContainerCorrected:
		if i >= 0 && r.events[i].Type == pleg.ContainerDied {
			last := &r.events[i]
			last.ExitCode, last.Reason, last.FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
			last.fields = inner(&last.Event)
		}
	}
}

func (r *record) setStatus(status *pleg.PodStatus) {
	if status == nil || status == r.status {
		return
	}
	r.status, r.details = status, make(object, 0, 1024).status(status)
	if newest := newestSandbox(status); newest != nil && newest.Labels != nil {
		text, _ := json.Marshal(newest.Labels) // texts never fail
		r.labels = append(object(nil).name("labels"), text...)
	}
}

// gone reports whether no container of the pod is left.
func (r *record) gone() bool { return len(r.events) == 0 }

// end returns the message about the pod that begins with head. If it would have more bytes than limit, it
// leaves something out, and says so, also in cut.
func (r *record) end(head object, limit int) (body object, cut string) {
	for parts := 3; ; parts-- {
		o := append(head.name("pod"), '{').bool("gone", r.gone())
		if parts > 0 {
			o = append(o.name("events"), '[')
			for i := range r.events {
				o = append(append(append(o.name(""), '{'), r.events[i].fields...), '}')
			}
			o = append(o, ']')
		}
		if parts > 1 && r.details != nil {
			o = append(o.name(""), r.details...)
		}
		if parts > 2 && r.labels != nil {
			o = append(o.name(""), r.labels...)
		}
		body = append(o.text("error", cut), "}}}"...)
		if len(body) <= limit || parts == 0 {
			return body, cut
		}
		cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(body))
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
