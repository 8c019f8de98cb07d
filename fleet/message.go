package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// cloudEvent is what a reader needs of a message in the stream: a CloudEvent 1.0 in JSON. docs/fleet.md
// describes it.
type cloudEvent struct {
	Type string `json:"type"`
	Data data   `json:"data"`
}

const contentType = "application/cloudevents+json"

// data is an event, or what else a message says. Seq is then the number of the node's last event.
type data struct {
	pleg.Event

	// Pod is the pod as it is after the event; nil in a message about the node.
	Pod *podState `json:"pod"`
}

// kind is what a message is.
type kind string

const (
	ofEvent kind = "event"
	// ofState is the state of a pod, published again.
	ofState kind = "pod.state"
	// ofAgent says that an agent begins to publish the states of a node, ofGap that they are
	// complete and that events are missing.
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

// encode begins the message about an event, a pod or a node. The caller closes its data and the
// message.
func encode(to object, source string, k kind, ev *pleg.Event) (object, error) {
	name, more := string(k), ""
	switch info := eventtype.Of(ev.Type); {
	case k != ofEvent:
		more = fmt.Sprintf("/%s/%s/%x", name, ev.PodUID, ev.ObservedAt.UnixNano())
	case info.Class == eventtype.ClassMark || info.Number == 0:
		return nil, fmt.Errorf("event type %q cannot be published", ev.Type)
	default:
		name = strings.ReplaceAll(info.Name, "_", "")
	}
	seq := strconv.FormatUint(ev.Seq, 10)
	o := append(to, `{"specversion":"1.0"`...)
	o = o.text("id", ev.Epoch+"/"+seq+more).text("source", source).text("type", ceTypePrefix+name+ceTypeSuffix).text("subject", string(ev.PodUID))
	o = o.time("time", ev.ObservedAt).text("datacontenttype", "application/json").text("sequence", strings.Repeat("0", 20-len(seq))+seq)
	return append(o.name("data"), '{').event(ev, true), nil
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
