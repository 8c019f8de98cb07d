package otlp

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// newRecord returns the record of an event. An event that is exported twice yields the same record.
func newRecord(ev *pleg.Event) (r log.Record) {
	r.SetEventName("pleg." + text(eventtype.Of(ev.Type).Name))
	r.SetTimestamp(ev.ObservedAt)
	r.SetObservedTimestamp(ev.ObservedAt)
	r.SetSeverity(log.SeverityInfo)
	if eventtype.SeverityOf(ev) == eventtype.SeverityBad {
		r.SetSeverity(log.SeverityWarn)
	}
	r.SetSeverityText(r.Severity().String())
	r.SetBody(attribute.StringValue(body(ev)))
	r.AddAttributes(recordAttributes(ev)...)
	return r
}

func recordAttributes(ev *pleg.Event) []attribute.KeyValue {
	uid := pleg.Position{Epoch: text(ev.Epoch), Seq: ev.Seq}.String()
	reason := "k8s.container.status.reason"
	if eventtype.Of(ev.Type).Class == eventtype.ClassMark {
		// A mark carries the number of the event before it, so its name is a part of its identity.
		uid += ":" + eventtype.Of(ev.Type).Name
		reason = "pleg.reason"
	}
	name, attempt := ev.ContainerName, "k8s.container.restart_count"
	if ev.Sandbox {
		name, attempt = "", "pleg.sandbox.attempt"
	}
	a := []attribute.KeyValue{
		attribute.String("log.record.uid", uid),
		attribute.String("pleg.epoch", text(ev.Epoch)),
		attribute.Int64("pleg.seq", int64(ev.Seq)), //nolint:gosec // an event a nanosecond for 292 years
		attribute.String("k8s.namespace.name", text(ev.PodNamespace)),
		attribute.String("k8s.pod.name", text(ev.PodName)),
		attribute.String("k8s.pod.uid", text(string(ev.PodUID))),
		attribute.String("container.id", text(string(ev.ContainerID))),
		attribute.String("k8s.container.name", text(name)),
		attribute.String(reason, text(ev.Reason)),
	}
	a = slices.DeleteFunc(a, func(a attribute.KeyValue) bool { return a.Value == attribute.StringValue("") })
	if ev.ContainerID != "" {
		a = append(a, attribute.Bool("pleg.sandbox", ev.Sandbox), attribute.Int64(attempt, int64(ev.Attempt)))
	}
	if ev.ExitCode != nil {
		a = append(a, attribute.Int64("process.exit.code", int64(*ev.ExitCode)))
	}
	if ev.Missed > 0 {
		a = append(a, attribute.Int64("pleg.missed", int64(ev.Missed))) //nolint:gosec // as above
	}
	if ev.Replayed {
		a = append(a, attribute.Bool("pleg.replayed", true))
	}
	return a
}

// body returns a sentence for people.
func body(ev *pleg.Event) string {
	what := "Pod "
	switch {
	case ev.Type == pleg.Gap:
		return "Events may be missing"
	case ev.Type == pleg.Synced:
		return "The present state of all pods is complete"
	case ev.Sandbox:
		what = "Sandbox of pod "
	case ev.ContainerID != "":
		what = fmt.Sprintf("Container %s of pod ", text(ev.ContainerName))
	}
	what += fmt.Sprintf("%s/%s %s", text(ev.PodNamespace), text(ev.PodName), text(eventtype.Of(ev.Type).Verb))
	if ev.ExitCode != nil {
		what += fmt.Sprintf(" with exit code %d", *ev.ExitCode)
	}
	if ev.Replayed {
		what += " (already known)"
	}
	return what
}

// maxText is the length in bytes to which a text is cut. No valid name is longer; a runtime may
// send any text as the reason of an exit. With [maxBatch] it keeps every request below the 4 MiB
// that a gRPC server accepts.
const maxText = 512

// text returns s as protobuf allows it: a runtime may send text that is not UTF-8, and one such
// text would make the whole request invalid.
func text(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], string(utf8.RuneError))
}
