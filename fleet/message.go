package fleet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	gojson "github.com/goccy/go-json"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const contentType = "application/cloudevents+json"

// data is an event, or what else a message says. Seq is then the number of the node's last event.
type data struct {
	pleg.Event

	// Pod is the pod as it is after the event; nil in a message about the node.
	Pod *podState `json:"pod"`
}

// podState is a pod as it is after an event, as a reader gets it.
type podState struct {
	Labels map[string]string `json:"labels"`
	// Gone is true for a pod without containers and sandboxes.
	Gone bool `json:"gone"`
	// Events are the last event of each container and sandbox that is not removed, in the order
	// of their numbers. What they have in common with the event of the message is left out.
	Events []pleg.Event `json:"events"`
	// Status is a [pleg.PodStatus] without annotations and labels. Most readers do not need it.
	Status json.RawMessage `json:"status"`
	// Error says what was too large to publish.
	Error string `json:"error"`
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

// begin begins a message, a CloudEvent 1.0 in JSON: its data, and the message, have no end. docs/fleet.md
// describes it. The fields are those of inner.
func begin(to object, source string, k kind, ev *pleg.Event, fields object) (o object) {
	seq := strconv.FormatUint(ev.Seq, 10)
	name, id := string(k), ev.Epoch+"/"+seq
	if k == ofEvent {
		name = strings.ReplaceAll(eventtype.Of(ev.Type).Name, "_", "")
	} else {
		id = fmt.Sprintf("%s/%s/%s/%x", id, name, ev.PodUID, ev.ObservedAt.UnixNano())
	}
	o = append(to, `{"specversion":"1.0"`...)
	o = o.text("id", id).text("source", source).text("type", ceTypePrefix+name+ceTypeSuffix).text("subject", string(ev.PodUID))
	o = o.time("time", ev.ObservedAt).text("datacontenttype", "application/json").text("sequence", strings.Repeat("0", 20-len(seq))+seq)
	o = append(append(o.name("data"), '{'), fields...)
	return o.text("podUID", string(ev.PodUID)).text("podName", ev.PodName).text("podNamespace", ev.PodNamespace)
}

// message is what a reader makes of a message.
type message struct {
	kind kind
	data
}

func decode(body []byte) (message, error) {
	var ce struct {
		Type string `json:"type"`
		Data data   `json:"data"`
	}
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
