package fleet

import (
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
	// podState is what is published of the pod, with the encoded status and the labels, which are of the status too.
	podState
	podLabels

	status  *pleg.PodStatus
	encoded []byte
}

// newRecord returns the record of a pod of which nothing is there.
func newRecord(uid pleg.PodUID, name, namespace string) *record {
	return &record{uid: uid, name: name, namespace: namespace, podState: podState{Gone: true}}
}

// apply adds an event, and the status that came with it.
func (r *record) apply(ev *pleg.Event) {
	r.setStatus(ev.Status)
	i := slices.IndexFunc(r.Events, func(last pleg.Event) bool { return last.ContainerID == ev.ContainerID })
	switch ev.Type {
	case pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved:
		if i >= 0 {
			r.Events = slices.Delete(r.Events, i, i+1)
		}
		if ev.Type != pleg.ContainerRemoved {
			last := *ev
			last.PodUID, last.PodName, last.PodNamespace, last.Status = "", "", "", nil
			r.Events = append(r.Events, last)
		}
	case pleg.ContainerCorrected:
		if i >= 0 && r.Events[i].Type == pleg.ContainerDied {
			last := &r.Events[i]
			last.ExitCode, last.Reason, last.FinishedAt = ev.ExitCode, ev.Reason, ev.FinishedAt
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

// encode returns a message with the pod. If it would have more bytes than limit, it leaves something out, and says
// so, also in cut.
func (r *record) encode(m *cloudEvent, limit int) (body []byte, cut string) {
	pod, status := &podTimed{podLabels: r.podLabels, podState: r.podState, Events: make([]timed, len(r.Events))}, r.encoded
	for i := range r.Events {
		pod.Events[i] = newTimed(&r.Events[i])
	}
	m.Data.Pod = pod
	for _, leaveOut := range []func(){func() { pod.Labels = nil }, func() { status = nil }, func() { pod.Events = nil }} {
		if body = withStatus(encode(m), status); len(body) <= limit {
			return body, cut
		}
		cut = fmt.Sprintf("the state is too large to publish whole: %d bytes", len(body))
		pod.Error = cut
		leaveOut()
	}
	return encode(m), cut
}

// withStatus adds the status to a message, at the end of its pod.
func withStatus(body, status []byte) []byte {
	if status == nil {
		return body
	}
	const end = "}}}"
	return slices.Concat(body[:len(body)-len(end)], []byte(`,"status":`), status, []byte(end))
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
