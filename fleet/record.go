package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	gojson "github.com/goccy/go-json"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// record is the publisher's state of a pod. The common part of a pod's messages is encoded once.
type record struct {
	uid             pleg.PodUID
	name, namespace string
	// stored is the time at which its last message was acknowledged, sequence the number of that message, count the
	// number of its messages on the server.
	stored   time.Time
	sequence uint64
	count    uint64
	// podTimed is the published part of the pod, with the encoded status and its labels.
	podTimed

	status  *pleg.PodStatus
	encoded []byte
}

// newRecord returns the record of a pod without events.
func newRecord(uid pleg.PodUID, name, namespace string) *record {
	return &record{uid: uid, name: name, namespace: namespace, podTimed: podTimed{Gone: true}}
}

// apply adds an event, and the status that came with it.
func (r *record) apply(ev *pleg.Event) {
	r.setStatus(ev.Status)
	i := slices.IndexFunc(r.Events, func(last timed) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			r.Events = slices.Delete(r.Events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			last := *ev
			last.PodUID, last.PodName, last.PodNamespace, last.Status = "", "", "", nil
			r.Events = append(r.Events, newTimed(&last))
		}
	case pleg.ContainerCorrected:
		if i >= 0 && r.Events[i].Type == pleg.ContainerDied {
			last := *r.Events[i].Event
			last.ExitCode, last.Reason, last.FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
			r.Events[i] = newTimed(&last)
		}
	}
	r.Gone = len(r.Events) == 0
}

func (r *record) setStatus(status *pleg.PodStatus) {
	if status == nil || status == r.status {
		return
	}
	r.status, r.encoded = status, encodeStatus(status)
	if newest := newestSandbox(status); newest != nil && newest.Labels != nil {
		r.Labels = newest.Labels
	}
}

// encode returns a message with the pod. If the message would be longer than limit, encode leaves something out,
// and says so, also in cut.
func (r *record) encode(m *cloudEvent, limit int) (body []byte, cut string) {
	pod, text := r.podTimed, withStatus{status: r.encoded}
	m.Data.Pod = &pod
	for _, leaveOut := range []func(){func() { pod.Labels = nil }, func() { text.status = nil }, func() { pod.Events = nil }, nil} {
		_ = gojson.NewEncoder(&text).Encode(m) // texts and numbers never fail
		if len(text.body) <= limit || leaveOut == nil {
			break
		}
		cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(text.body))
		pod.Error = cut
		leaveOut()
	}
	return text.body, cut
}

// withStatus is a message that is written, and the status at the end of its pod.
type withStatus struct{ status, body []byte }

// Write implements io.Writer.
func (w *withStatus) Write(text []byte) (int, error) {
	const end = "}}}\n"
	if w.body = text[:len(text)-len(end)]; w.status == nil {
		w.body = slices.Concat(w.body, []byte("}}}"))
	} else {
		w.body = slices.Concat(w.body, []byte(`,"status":`), w.status, []byte("}}}"))
	}
	return len(text), nil
}

// maxText is the length of one text of an event in bytes. CRI bounds no name, and the server always
// refuses a message that is larger than its max_payload.
const maxText = 4 << 10

// fit cuts the texts of an event that are too long, and reports whether there were any. A cut text
// ends with a hash of the whole, so that two ids stay distinct.
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
