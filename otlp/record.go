package otlp

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// schemaURL is the version of the semantic conventions that the attributes without the
// prefix "pleg." are from.
const schemaURL = "https://opentelemetry.io/schemas/1.37.0"

// scopeName is the instrumentation scope of all records.
const scopeName = "github.com/pleg-pipeline/pleg-pipeline/otlp"

// replayedVerbs are those of a replayed event, which describes a state, not a change.
var replayedVerbs = map[pleg.EventType]string{
	pleg.ContainerStarted: "is running",
	pleg.ContainerDied:    "has died",
}

// newRecord returns the record of an event. It depends on nothing else: an event that is
// exported twice has the same record.
func newRecord(ev *pleg.Event) *logsv1.LogRecord {
	info := ev.Type.Info()
	verb := text(info.Verb)
	if replayed := replayedVerbs[ev.Type]; ev.Replayed && replayed != "" {
		verb = replayed
	}
	at := uint64(max(0, ev.ObservedAt.UnixNano())) //nolint:gosec // not negative
	if ev.ObservedAt.IsZero() {
		at = 0
	}
	r := &logsv1.LogRecord{
		TimeUnixNano: at, ObservedTimeUnixNano: at,
		SeverityNumber: logsv1.SeverityNumber_SEVERITY_NUMBER_INFO, SeverityText: "INFO",
		EventName:  "pleg." + text(info.Name),
		Body:       &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: body(ev, verb)}},
		Attributes: recordAttributes(ev),
	}
	if ev.Severity() == pleg.SeverityBad {
		r.SeverityNumber, r.SeverityText = logsv1.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	}
	return r
}

// isMark reports whether the event is about the stream, not about a pod.
func isMark(t pleg.EventType) bool { return t == pleg.Gap || t == pleg.Synced }

// uid identifies the record among those of all nodes. A mark has the number of the event
// before it, so its name is a part of it.
func uid(ev *pleg.Event) string {
	position := pleg.Position{Epoch: text(ev.Epoch), Seq: ev.Seq}.String()
	if isMark(ev.Type) {
		return position + ":" + strings.ToLower(string(ev.Type))
	}
	return position
}

func recordAttributes(ev *pleg.Event) []*commonv1.KeyValue {
	var a attributes
	a.text("log.record.uid", uid(ev))
	a.text("pleg.epoch", ev.Epoch)
	a.number("pleg.seq", int64(ev.Seq)) //nolint:gosec // an event a nanosecond for 292 years
	if ev.Missed > 0 {
		a.number("pleg.missed", int64(ev.Missed)) //nolint:gosec // the same
	}
	if isMark(ev.Type) {
		a.text("pleg.reason", ev.Reason)
		return a
	}
	a.text("k8s.namespace.name", ev.PodNamespace)
	a.text("k8s.pod.name", ev.PodName)
	a.text("k8s.pod.uid", string(ev.PodUID))
	a.text("container.id", string(ev.ContainerID))
	if ev.ContainerID != "" {
		a.flag("pleg.sandbox", ev.Sandbox)
		if ev.Sandbox {
			a.number("pleg.sandbox.attempt", int64(ev.Attempt))
		} else {
			a.text("k8s.container.name", ev.ContainerName)
			a.number("k8s.container.restart_count", int64(ev.Attempt))
		}
	}
	if ev.ExitCode != nil {
		a.number("process.exit.code", int64(*ev.ExitCode))
	}
	a.text("k8s.container.status.reason", ev.Reason)
	if ev.Replayed {
		a.flag("pleg.replayed", true)
	}
	if ev.Uninspected {
		a.flag("pleg.uninspected", true)
	}
	return a
}

// body returns a sentence for people.
func body(ev *pleg.Event, verb string) string {
	pod := text(ev.PodNamespace) + "/" + text(ev.PodName)
	switch {
	case ev.Type == pleg.Gap && ev.Reason == pleg.Stopped:
		return fmt.Sprintf("The agent stopped before it could export %d events", ev.Missed)
	case ev.Type == pleg.Gap && ev.Missed > 0:
		return fmt.Sprintf("%d events are missing; the present state of all pods follows", ev.Missed)
	case ev.Type == pleg.Gap:
		return "Earlier events may be missing; the present state of all pods follows"
	case ev.Type == pleg.Synced:
		return "The present state of all pods is complete"
	case ev.ContainerID == "":
		return fmt.Sprintf("Pod %s %s", pod, verb)
	case ev.Sandbox:
		return fmt.Sprintf("Sandbox of pod %s %s", pod, verb)
	case ev.ExitCode == nil:
		return fmt.Sprintf("Container %s of pod %s %s", text(ev.ContainerName), pod, verb)
	case ev.Reason == "":
		return fmt.Sprintf("Container %s of pod %s %s with exit code %d", text(ev.ContainerName), pod, verb, *ev.ExitCode)
	}
	return fmt.Sprintf("Container %s of pod %s %s with exit code %d (%s)", text(ev.ContainerName), pod, verb, *ev.ExitCode, text(ev.Reason))
}

// newResource returns what all records of an exporter have in common.
func newResource(o *ExporterOptions) *resourcev1.Resource {
	var a attributes
	a.text("service.name", "pleg-pipeline")
	a.text("service.version", o.ServiceVersion)
	a.text("k8s.cluster.name", o.Cluster)
	a.text("k8s.node.name", o.Node)
	return &resourcev1.Resource{Attributes: a}
}

// attributes grows by one with each call.
type attributes []*commonv1.KeyValue

// text adds a text unless it is empty.
func (a *attributes) text(key, value string) {
	if value != "" {
		*a = append(*a, &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: text(value)}}})
	}
}

func (a *attributes) number(key string, value int64) {
	*a = append(*a, &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_IntValue{IntValue: value}}})
}

func (a *attributes) flag(key string, value bool) {
	*a = append(*a, &commonv1.KeyValue{Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_BoolValue{BoolValue: value}}})
}

// maxText is the length in bytes to which a text is cut. No valid name is longer; the
// reason of an exit is whatever a runtime says.
const maxText = 1024

// text returns s as protobuf allows it: a runtime may say what is not UTF-8, and one such
// text would make the whole request invalid.
func text(s string) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if len(s) <= maxText {
		return s
	}
	cut := maxText
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// observedAt returns the time of the event of a record; zero if it has none.
func observedAt(r *logsv1.LogRecord) time.Time {
	if r.GetObservedTimeUnixNano() == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(r.GetObservedTimeUnixNano())) //nolint:gosec // it was one before
}
