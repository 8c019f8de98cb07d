package view

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// detailsWidth is the room that the details of events need: "exit 137, OOMKilled".
const detailsWidth = 19

func eventColumns() []column[pleg.Event] {
	return []column[pleg.Event]{
		{name: "TIME", width: len("15:04:05.000"), value: func(ev *pleg.Event) string { return clock(ev.ObservedAt, "15:04:05.000") }},
		{name: "EVENT", width: len(pleg.ContainerStarted), value: func(ev *pleg.Event) string { return string(ev.Type) }, color: eventColor},
		{name: "NAMESPACE", width: len("kube-system"), value: func(ev *pleg.Event) string { return cmp.Or(ev.PodNamespace, "-") }},
		{name: "POD", width: 32, value: podName},
		{name: "CONTAINER", width: 16, value: containerName},
		{name: "ATTEMPT", width: len("ATTEMPT"), value: attempt},
		{name: "ID", width: idWidth, value: func(ev *pleg.Event) string { return ShortID(string(ev.ContainerID)) }},
		{name: "DETAILS", value: details},
	}
}

// narrowEventColumns are those of a terminal that is too narrow for eventColumns.
func narrowEventColumns() []column[pleg.Event] {
	columns := eventColumns()
	return []column[pleg.Event]{
		{name: "TIME", width: len("15:04:05"), value: func(ev *pleg.Event) string { return clock(ev.ObservedAt, "15:04:05") }},
		{name: "EVENT", width: len(pleg.ContainerStarted), value: columns[1].value, color: eventColor},
		{name: "POD", width: 44, value: fullPodName, least: 20},
		{name: "CONTAINER", width: 16, value: containerName, least: len("(sandbox)")},
		{name: "DETAILS", value: details},
	}
}

// fullPodName returns the namespace and the name of the pod.
func fullPodName(ev *pleg.Event) string {
	if ev.PodName == "" {
		return podName(ev)
	}
	return ev.PodNamespace + "/" + ev.PodName
}

func wideEventColumns() []column[pleg.Event] {
	const layout = "2006-01-02T15:04:05.000Z07:00"
	c := eventColumns()
	c[0] = column[pleg.Event]{name: "TIME", width: len(layout), value: func(ev *pleg.Event) string { return clock(ev.ObservedAt, layout) }}
	c[6].value = func(ev *pleg.Event) string { return cmp.Or(string(ev.ContainerID), "-") }
	c = slices.Insert(c, 7,
		column[pleg.Event]{name: "IMAGE", width: 32, value: func(ev *pleg.Event) string { return cmp.Or(ev.Image, "-") }},
		column[pleg.Event]{name: "STARTED", width: len(layout), value: func(ev *pleg.Event) string { return clock(ev.StartedAt, layout) }},
		column[pleg.Event]{name: "FINISHED", width: len(layout), value: func(ev *pleg.Event) string { return clock(ev.FinishedAt, layout) }},
	)
	c = slices.Insert(c, 4, column[pleg.Event]{name: "POD UID", width: 36, value: func(ev *pleg.Event) string { return cmp.Or(string(ev.PodUID), "-") }})
	return slices.Insert(c, 0, column[pleg.Event]{name: "SEQ", width: 8, value: func(ev *pleg.Event) string { return strconv.FormatUint(ev.Seq, 10) }})
}

func clock(at time.Time, layout string) string {
	if at.IsZero() {
		return "-"
	}
	return at.In(time.Local).Format(layout)
}

func podName(ev *pleg.Event) string { return cmp.Or(ev.PodName, string(ev.PodUID), "-") }

// containerName returns a sandbox in brackets, which a container name cannot have.
func containerName(ev *pleg.Event) string {
	if ev.Sandbox {
		return "(sandbox)"
	}
	return cmp.Or(ev.ContainerName, "-")
}

func attempt(ev *pleg.Event) string {
	if ev.ContainerID == "" {
		return "-"
	}
	return strconv.FormatUint(uint64(ev.Attempt), 10)
}

func details(ev *pleg.Event) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case ev.Type == pleg.Synced:
		add("all earlier events are printed; what follows happens now")
	case ev.Type == pleg.Gap && ev.Reason == pleg.OtherEpoch:
		add("earlier events are missing: the daemon was restarted")
	case ev.Type == pleg.Gap && ev.Reason == pleg.Stopped:
		add("%d events are missing: the daemon ended before they were read", ev.Missed)
	case ev.Type == pleg.Gap && ev.Missed > 0:
		add("%d events are missing: the history no longer has them", ev.Missed)
	case ev.Type == pleg.Gap:
		add("events are missing: the history no longer has them")
	case ev.Missed > 0:
		add("%d events missed", ev.Missed)
	case ev.ExitCode != nil && ev.Reason != "":
		add("exit %d, %s", *ev.ExitCode, ev.Reason)
	case ev.ExitCode != nil:
		add("exit %d", *ev.ExitCode)
	case ev.Reason != "":
		add("%s", ev.Reason)
	}
	if ev.Replayed {
		add("replayed")
	}
	if ev.Uninspected {
		add("not inspected")
	}
	return strings.Join(parts, ", ")
}

func eventColor(ev *pleg.Event) string {
	switch ev.Severity() {
	case pleg.SeverityGood:
		return Green
	case pleg.SeverityBad:
		return Red
	case pleg.SeverityRoutine:
		return Faint
	default:
		return Yellow
	}
}
