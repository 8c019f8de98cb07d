package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// A message on the stream is a batch of CloudEvents 1.0 in JSON: consecutive events of
// one node, or one Gap.

const contentType = "application/cloudevents-batch+json"

// cloudEvent is one event in the stream. docs/fleet.md describes the attributes.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject,omitempty"`
	Time            time.Time `json:"time,omitzero"`
	DataContentType string    `json:"datacontenttype"`
	// Sequence is the CloudEvents extension of this name: its values sort as text.
	Sequence string    `json:"sequence"`
	Data     eventData `json:"data"`
}

// eventData is the event, with the labels of its pod for the selectors of watches.
type eventData struct {
	pleg.Event

	Labels map[string]string `json:"labels,omitempty"`
}

// ceType returns the value of the attribute type. There is none for the marks of one
// subscription.
func ceType(t pleg.EventType) (string, error) {
	info := t.Info()
	switch {
	case t == pleg.Gap:
		info.Name = "node.gap"
	case info.Class == pleg.ClassMark || info.Number == 0:
		return "", fmt.Errorf("event type %q cannot be published", t)
	}
	return ceTypePrefix + strings.ReplaceAll(info.Name, "_", "") + ceTypeSuffix, nil
}

const (
	ceTypePrefix = "io.github.pleg-pipeline."
	ceTypeSuffix = ".v1"
)

func ceSource(cluster, node string) string {
	return "/clusters/" + url.PathEscape(cluster) + "/nodes/" + url.PathEscape(node)
}

func encodeEvent(source string, d eventData) ([]byte, error) {
	name, err := ceType(d.Type)
	if err != nil {
		return nil, err
	}
	return json.Marshal(cloudEvent{
		SpecVersion:     "1.0",
		ID:              fmt.Sprintf("%s/%d", d.Epoch, d.Seq),
		Source:          source,
		Type:            name,
		Subject:         string(d.PodUID),
		Time:            d.ObservedAt,
		DataContentType: "application/json",
		Sequence:        fmt.Sprintf("%020d", d.Seq),
		Data:            d,
	})
}

// message is what a watch or a new session reads of a message.
type message struct {
	epoch string
	// first and last are the numbers of its events; those of a Gap are both that of
	// the last event before it.
	first, last uint64
	gap         bool
	events      []eventData
}

var errEmptyMessage = errors.New("it has no events")

func decode(body []byte) (message, error) {
	var batch []struct {
		Data eventData `json:"data"`
	}
	if err := json.Unmarshal(body, &batch); err != nil {
		return message{}, err
	}
	if len(batch) == 0 {
		return message{}, errEmptyMessage
	}
	m := message{epoch: batch[0].Data.Epoch, first: batch[0].Data.Seq, gap: batch[0].Data.Type == pleg.Gap}
	for i, entry := range batch {
		if entry.Data.Epoch != m.epoch || entry.Data.Seq != m.first+uint64(i) {
			return message{}, fmt.Errorf("event %d is %s/%d: want consecutive numbers of one epoch", i, entry.Data.Epoch, entry.Data.Seq)
		}
		m.events = append(m.events, entry.Data)
	}
	m.last = m.first + uint64(len(batch)) - 1
	return m, nil
}
