package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	gojson "github.com/goccy/go-json"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const contentType = "application/cloudevents+json"

// cloudEvent is a message to publish: a CloudEvent 1.0. docs/fleet.md describes it.
type cloudEvent struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Source          string `json:"source"`
	Type            string `json:"type"`
	Subject         string `json:"subject,omitempty"`
	Time            string `json:"time,omitempty"`
	DataContentType string `json:"datacontenttype"`
	Sequence        string `json:"sequence"`
	Data            struct {
		timed
		Pod *podTimed `json:"pod,omitempty"`
	} `json:"data"`
}

// timed is an event in the form in which it is encoded: to leave out a zero [time.Time] takes as long
// as to encode all other fields.
type timed struct {
	*pleg.Event

	StartedAt  string `json:"startedAt,omitempty"`
	FinishedAt string `json:"finishedAt,omitempty"`
	ObservedAt string `json:"observedAt,omitempty"`
}

func newTimed(ev *pleg.Event) timed {
	return timed{ev, stamp(ev.StartedAt), stamp(ev.FinishedAt), stamp(ev.ObservedAt)}
}

// stamp returns a time as package json writes it; an empty text for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// podTimed is a pod in the form in which it is encoded, like podState. Its status follows it.
type podTimed struct {
	podLabels

	Gone   bool    `json:"gone"`
	Events []timed `json:"events,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// data is the content of a message: an event, or something else with the number of the node's last event as
// Seq.
type data struct {
	pleg.Event

	// Pod is the pod as it is after the event; nil in a message about the node.
	Pod *podState `json:"pod"`
	// body is the encoded message.
	body []byte
}

// podLabels and podStatuses are the parts of a pod that most readers do not need.
type podLabels struct {
	Labels map[string]string `json:"labels,omitempty"`
}

type podStatuses struct {
	podLabels

	Status *pleg.PodStatus `json:"status"`
}

// podState is a pod as it is after an event.
type podState struct {
	// Gone is true for a pod without containers and sandboxes.
	Gone bool `json:"gone"`
	// Events are the last event of each container and sandbox that is not removed, in the order
	// of their numbers. Fields that equal those of the message's event are left out.
	Events []pleg.Event `json:"events"`
	// Error names the parts that were too large to publish.
	Error string `json:"error"`
}

// podStatus, containerStatus and sandboxStatus are the published parts of those types of package
// pleg.
type podStatus struct {
	IPs        []string          `json:"ips,omitempty"`
	Containers []containerStatus `json:"containers"`
	Sandboxes  []sandboxStatus   `json:"sandboxes"`
	ObservedAt string            `json:"observedAt,omitempty"`
}

type containerStatus struct {
	ID         pleg.ContainerID `json:"id"`
	Name       string           `json:"name"`
	Attempt    uint32           `json:"attempt,omitempty"`
	State      pleg.State       `json:"state"`
	CreatedAt  string           `json:"createdAt,omitempty"`
	StartedAt  string           `json:"startedAt,omitempty"`
	FinishedAt string           `json:"finishedAt,omitempty"`
	ExitCode   int32            `json:"exitCode,omitempty"`
	Reason     string           `json:"reason,omitempty"`
	Message    string           `json:"message,omitempty"`
	Image      string           `json:"image,omitempty"`
	ImageRef   string           `json:"imageRef,omitempty"`
	LogPath    string           `json:"logPath,omitempty"`
}

type sandboxStatus struct {
	ID          pleg.ContainerID `json:"id"`
	Attempt     uint32           `json:"attempt,omitempty"`
	Ready       bool             `json:"ready"`
	CreatedAt   string           `json:"createdAt,omitempty"`
	IPs         []string         `json:"ips,omitempty"`
	HostNetwork bool             `json:"hostNetwork,omitempty"`
}

// encodeStatus returns the published part of a status. Most readers do not need it.
func encodeStatus(status *pleg.PodStatus) []byte {
	published := podStatus{IPs: status.IPs, ObservedAt: stamp(status.ObservedAt), Containers: []containerStatus{}, Sandboxes: []sandboxStatus{}}
	for _, c := range status.Containers {
		published.Containers = append(published.Containers, containerStatus{
			c.ID, c.Name, c.Attempt, c.State, stamp(c.CreatedAt), stamp(c.StartedAt), stamp(c.FinishedAt), c.ExitCode, c.Reason, c.Message,
			c.Image, c.ImageRef, c.LogPath,
		})
	}
	for _, s := range status.Sandboxes {
		published.Sandboxes = append(published.Sandboxes, sandboxStatus{s.ID, s.Attempt, s.Ready, stamp(s.CreatedAt), s.IPs, s.HostNetwork})
	}
	return encode(&published)
}

func newestSandbox(status *pleg.PodStatus) *pleg.SandboxStatus {
	if len(status.Sandboxes) == 0 {
		return nil
	}
	return slices.MaxFunc(status.Sandboxes, func(a, b *pleg.SandboxStatus) int { return cmp.Compare(a.Attempt, b.Attempt) })
}

// kind is the kind of a message.
type kind string

const (
	ofEvent kind = "event"
	// ofState is the state of a pod, published again.
	ofState kind = "pod.state"
	// ofGap says that events of a node are missing, and that the states of its pods follow. ofSynced
	// says that these are complete.
	ofGap    kind = "node.gap"
	ofSynced kind = "node.synced"
	// ofAgent says that an agent still publishes.
	ofAgent kind = "node.agent"
	// ofGone says that the node was forgotten.
	ofGone kind = "node.gone"
)

const (
	ceTypePrefix = "io.github.pleg-pipeline."
	ceTypeSuffix = ".v1"
)

func ceSource(cluster, node string) string {
	return "/clusters/" + url.PathEscape(cluster) + "/nodes/" + url.PathEscape(node)
}

// newMessage returns a message with the fields that all messages contain.
func newMessage(source string, k kind, ev *pleg.Event) *cloudEvent {
	name, id := string(k), ev.Epoch+"/"+strconv.FormatUint(ev.Seq, 10)
	if k == ofEvent {
		name = strings.ReplaceAll(eventtype.Of(ev.Type).Name, "_", "")
	} else {
		id = fmt.Sprintf("%s/%s/%s/%x", id, name, ev.PodUID, ev.ObservedAt.UnixNano())
	}
	m := &cloudEvent{
		SpecVersion: "1.0", ID: id, Source: source, Type: ceTypePrefix + name + ceTypeSuffix, Subject: string(ev.PodUID),
		DataContentType: "application/json", Sequence: fmt.Sprintf("%020d", ev.Seq),
	}
	m.Data.timed = newTimed(ev)
	m.Time = m.Data.ObservedAt
	return m
}

// encode returns the text of a message, or of a part. Encoding texts and numbers cannot fail.
func encode(value any) []byte {
	text, _ := gojson.Marshal(value)
	return text
}

// message is a decoded message. Its texts are parts of the body.
type message struct {
	kind kind
	data
}

// maxObjects bounds the objects in a message: its size alone does not bound the memory of a reader.
const maxObjects = 5000

func decode(body []byte) (message, error) {
	var ce struct {
		Type string `json:"type"`
		Data data   `json:"data"`
	}
	if len(body) > maxObjects {
		if n := bytes.Count(body, []byte("{")) + bytes.Count(body, []byte("null")); n > maxObjects {
			return message{}, fmt.Errorf("it has %d objects: want at most %d", n, maxObjects)
		}
	}
	if err := gojson.UnmarshalWithOption(body, &ce, gojson.DecodeNoCopyString()); err != nil {
		return message{}, err
	}
	ce.Data.body = body
	m := message{ofEvent, ce.Data}
	switch name := kind(strings.TrimSuffix(strings.TrimPrefix(ce.Type, ceTypePrefix), ceTypeSuffix)); name {
	case ofState, ofGap, ofSynced, ofAgent, ofGone:
		m.kind = name
	}
	switch {
	case m.Epoch == "" && m.kind != ofGap && m.kind != ofAgent && m.kind != ofGone:
		return m, errors.New("it has no epoch")
	case m.Pod != nil:
		m.Pod.restore(&m.Event)
	case m.kind == ofState || m.kind == ofEvent:
		return m, errors.New("it has no pod")
	}
	return m, nil
}

// restore adds to the events the fields that were left out because the message's event contains
// them.
func (s *podState) restore(ev *pleg.Event) {
	for i := range s.Events {
		last := &s.Events[i]
		last.PodUID, last.PodName, last.PodNamespace = ev.PodUID, ev.PodName, ev.PodNamespace
	}
}

// podIn returns the fields of P in the pod of a message.
func podIn[P any](m *message) (P, error) {
	var ce struct {
		Data struct{ Pod P }
	}
	err := gojson.UnmarshalWithOption(m.body, &ce, gojson.DecodeNoCopyString())
	return ce.Data.Pod, err
}

// statuses returns the labels of the pod in a message, and its status; nil without a status.
func (m *message) statuses() (podStatuses, error) {
	pod, err := podIn[podStatuses](m)
	if status := pod.Status; status != nil {
		status.UID, status.Name, status.Namespace = m.PodUID, m.PodName, m.PodNamespace
		if newest := newestSandbox(status); newest != nil {
			newest.Labels = pod.Labels
		}
	}
	return pod, err
}
