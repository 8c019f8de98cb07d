package printer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func eventColumns() []column[pleg.Event] {
	return []column[pleg.Event]{
		{"TIME", len("15:04:05.000"), func(ev *pleg.Event) string { return clock(ev.ObservedAt, "15:04:05.000") }, nil},
		{"EVENT", len(pleg.ContainerStarted), func(ev *pleg.Event) string { return string(ev.Type) }, eventColor},
		{"NAMESPACE", len("kube-system"), func(ev *pleg.Event) string { return orDash(ev.PodNamespace) }, nil},
		{"POD", 32, podName, nil},
		{"CONTAINER", 16, containerName, nil},
		{"ATTEMPT", len("ATTEMPT"), attempt, nil},
		{"ID", idWidth, func(ev *pleg.Event) string { return shortID(string(ev.ContainerID)) }, nil},
		{"DETAILS", 0, details, nil},
	}
}

func wideEventColumns() []column[pleg.Event] {
	const ids = 36 // of a UID
	return []column[pleg.Event]{
		{"SEQ", 8, func(ev *pleg.Event) string { return strconv.FormatUint(ev.Seq, 10) }, nil},
		{"TIME", len("2006-01-02T15:04:05.000Z07:00"), func(ev *pleg.Event) string { return clock(ev.ObservedAt, "2006-01-02T15:04:05.000Z07:00") }, nil},
		{"EVENT", len(pleg.ContainerStarted), func(ev *pleg.Event) string { return string(ev.Type) }, eventColor},
		{"NAMESPACE", len("kube-system"), func(ev *pleg.Event) string { return orDash(ev.PodNamespace) }, nil},
		{"POD", 32, podName, nil},
		{"POD UID", ids, func(ev *pleg.Event) string { return orDash(string(ev.PodUID)) }, nil},
		{"CONTAINER", 16, containerName, nil},
		{"ATTEMPT", len("ATTEMPT"), attempt, nil},
		{"ID", idWidth, func(ev *pleg.Event) string { return orDash(string(ev.ContainerID)) }, nil},
		{"DETAILS", 0, details, nil},
	}
}

func clock(at time.Time, layout string) string {
	if at.IsZero() {
		return "-"
	}
	return at.In(time.Local).Format(layout)
}

func podName(ev *pleg.Event) string {
	if ev.PodName != "" {
		return ev.PodName
	}
	return orDash(string(ev.PodUID))
}

// containerName returns a sandbox in brackets, which a container name cannot have.
func containerName(ev *pleg.Event) string {
	if ev.Sandbox {
		return "(sandbox)"
	}
	return orDash(ev.ContainerName)
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
	switch ev.Type {
	case pleg.ContainerStarted, pleg.NetworkSetupCompleted:
		return green
	case pleg.ContainerDied:
		if ev.ExitCode != nil && *ev.ExitCode == 0 || ev.Sandbox {
			return yellow
		}
		return red
	case pleg.NetworkFailed, pleg.Gap:
		return red
	case pleg.ContainerRemoved, pleg.Synced, pleg.Bookmark:
		return faint
	default:
		return yellow
	}
}
