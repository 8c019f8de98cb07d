package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// cloudEvent is a message in the stream: a CloudEvent 1.0 in JSON. docs/fleet.md describes it.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time,omitzero"`
	DataContentType string    `json:"datacontenttype"`
	// Sequence is the CloudEvents extension of this name: its values sort as text.
	Sequence string `json:"sequence"`
	Data     data   `json:"data"`
}

const contentType = "application/cloudevents+json"

// data is an event, or what else a message says. Seq is then the number of the node's last event.
type data struct {
	pleg.Event

	// Pod is the pod as it is after the event; nil in a message about the node.
	Pod *podState `json:"pod,omitempty"`
	// Agent names the process that publishes, in a message about the node.
	Agent string `json:"agent,omitempty"`
}

// kind is what a message is.
type kind string

const (
	ofEvent kind = "event"
	// ofState is the state of a pod, published again.
	ofState kind = "pod.state"
	// ofAgent says that an agent begins to publish the states of a node, and ofGap that they are complete,
	// and that events are missing.
	ofAgent kind = "node.agent"
	ofGap   kind = "node.gap"
)

const (
	ceTypePrefix = "io.github.pleg-pipeline."
	ceTypeSuffix = ".v1"
)

func ceSource(cluster, node string) string {
	return "/clusters/" + url.PathEscape(cluster) + "/nodes/" + url.PathEscape(node)
}

// encode returns the message about an event, a pod or a node.
func encode(source string, k kind, d data) ([]byte, error) {
	name, id := string(k), fmt.Sprintf("%s/%d", d.Epoch, d.Seq)
	switch info := eventtype.Of(d.Type); {
	case k != ofEvent:
		id += fmt.Sprintf("/%s/%s/%x", name, d.PodUID, d.ObservedAt.UnixNano())
	case info.Class == eventtype.ClassMark || info.Number == 0:
		return nil, fmt.Errorf("event type %q cannot be published", d.Type)
	default:
		name = strings.ReplaceAll(info.Name, "_", "")
	}
	return json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: id, Source: source, Type: ceTypePrefix + name + ceTypeSuffix, Subject: string(d.PodUID),
		Time: d.ObservedAt, DataContentType: "application/json", Sequence: fmt.Sprintf("%020d", d.Seq), Data: d,
	})
}

// message is what a reader makes of a message.
type message struct {
	kind kind
	data
}

func decode(body []byte) (message, error) {
	var ce cloudEvent
	if err := json.Unmarshal(body, &ce); err != nil {
		return message{}, err
	}
	m := message{ofEvent, ce.Data}
	switch name := kind(strings.TrimSuffix(strings.TrimPrefix(ce.Type, ceTypePrefix), ceTypeSuffix)); name {
	case ofState, ofAgent, ofGap:
		m.kind = name
	}
	switch {
	case m.Epoch == "" && m.kind != ofAgent:
		return m, errors.New("it has no epoch")
	case m.Pod != nil:
		m.Pod.restore(&m.Event)
	case m.kind == ofState || m.kind == ofEvent:
		return m, errors.New("it has no pod")
	}
	return m, nil
}
