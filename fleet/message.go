package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	gojson "github.com/goccy/go-json"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const contentType = "application/cloudevents+json"

// cloudEvent is a message: a CloudEvent 1.0. docs/fleet.md describes it.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time,omitzero"`
	DataContentType string    `json:"datacontenttype"`
	Sequence        string    `json:"sequence"`
	Data            data      `json:"data"`
}

// data is an event, or what else a message says. Seq is then the number of the node's last event.
type data struct {
	pleg.Event

	// Pod is the pod as it is after the event; nil in a message about the node, which names its agent.
	Pod   *podState `json:"pod,omitempty"`
	Agent string    `json:"agent,omitempty"`
}

// podState is a pod as it is after an event.
type podState struct {
	Labels map[string]string `json:"labels,omitempty"`
	// Gone is true for a pod without containers and sandboxes.
	Gone bool `json:"gone"`
	// Events are the last event of each container and sandbox that is not removed, in the order
	// of their numbers. What they have in common with the event of the message is left out.
	Events []pleg.Event `json:"events,omitempty"`
	// Status is a [podStatus]. Most readers do not need it.
	Status json.RawMessage `json:"status,omitempty"`
	// Error says what was too large to publish.
	Error string `json:"error,omitempty"`
}

// podStatus, containerStatus and sandboxStatus are what is published of those of package pleg.
type podStatus struct {
	IPs        []string          `json:"ips,omitempty"`
	Containers []containerStatus `json:"containers"`
	Sandboxes  []sandboxStatus   `json:"sandboxes"`
	ObservedAt time.Time         `json:"observedAt,omitzero"`
}

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

// kind is what a message is.
type kind string

const (
	ofEvent kind = "event"
	// ofState is the state of a pod, published again.
	ofState kind = "pod.state"
	// ofGap says that events of a node are missing, and that the states of its pods follow. ofSynced
	// says that these are complete.
	ofGap    kind = "node.gap"
	ofSynced kind = "node.synced"
	// ofAgent says again that an agent publishes.
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

// newMessage returns a message with what all have.
func newMessage(source string, k kind, ev *pleg.Event) cloudEvent {
	name, id := string(k), fmt.Sprintf("%s/%d", ev.Epoch, ev.Seq)
	if k == ofEvent {
		name = strings.ReplaceAll(eventtype.Of(ev.Type).Name, "_", "")
	} else {
		id = fmt.Sprintf("%s/%s/%s/%x", id, name, ev.PodUID, ev.ObservedAt.UnixNano())
	}
	return cloudEvent{
		"1.0", id, source, ceTypePrefix + name + ceTypeSuffix, string(ev.PodUID), ev.ObservedAt, "application/json", fmt.Sprintf("%020d", ev.Seq),
		data{Event: *ev},
	}
}

// encode returns the text of a message, or of a part. Texts, numbers and times never fail.
func encode(value any) []byte {
	text, _ := gojson.Marshal(value)
	return text
}

// message is what a reader makes of a message.
type message struct {
	kind kind
	data
}

func decode(body []byte) (message, error) {
	var ce cloudEvent
	if err := gojson.Unmarshal(body, &ce); err != nil {
		return message{}, err
	}
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

// restore adds to the events what they have in common with the event of the message.
func (s *podState) restore(ev *pleg.Event) {
	for i := range s.Events {
		last := &s.Events[i]
		last.PodUID, last.PodName, last.PodNamespace = ev.PodUID, ev.PodName, ev.PodNamespace
	}
}

// status returns the status of the pod; nil if it has none.
func (d *data) status() (*pleg.PodStatus, error) {
	if d.Pod.Status == nil {
		return nil, nil
	}
	status := new(pleg.PodStatus)
	if err := json.Unmarshal(d.Pod.Status, status); err != nil {
		return nil, err
	}
	status.UID, status.Name, status.Namespace = d.PodUID, d.PodName, d.PodNamespace
	if newest := newestSandbox(status); newest != nil {
		newest.Labels = d.Pod.Labels
	}
	return status, nil
}
