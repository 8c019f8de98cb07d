package printer

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func eventColumns() []column[pleg.Event] {
	return []column[pleg.Event]{
		{"TIME", len("15:04:05.000"), func(ev *pleg.Event) string { return clock(ev.ObservedAt, "15:04:05.000") }, nil},
		{"EVENT", len(pleg.ContainerStarted), func(ev *pleg.Event) string { return string(ev.Type) }, eventColor},
		{"NAMESPACE", len("kube-system"), func(ev *pleg.Event) string { return cmp.Or(ev.PodNamespace, "-") }, nil},
		{"POD", 32, podName, nil},
		{"CONTAINER", 16, containerName, nil},
		{"ATTEMPT", len("ATTEMPT"), attempt, nil},
		{"ID", idWidth, func(ev *pleg.Event) string { return shortID(string(ev.ContainerID)) }, nil},
		{"DETAILS", 0, details, nil},
	}
}

func wideEventColumns() []column[pleg.Event] {
	const layout = "2006-01-02T15:04:05.000Z07:00"
	c := eventColumns()
	c[0] = column[pleg.Event]{"TIME", len(layout), func(ev *pleg.Event) string { return clock(ev.ObservedAt, layout) }, nil}
	c[6].value = func(ev *pleg.Event) string { return cmp.Or(string(ev.ContainerID), "-") }
	c = slices.Insert(c, 4, column[pleg.Event]{"POD UID", 36, func(ev *pleg.Event) string { return cmp.Or(string(ev.PodUID), "-") }, nil})
	return slices.Insert(c, 0, column[pleg.Event]{"SEQ", 8, func(ev *pleg.Event) string { return strconv.FormatUint(ev.Seq, 10) }, nil})
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

func podColumns() []column[podview.Pod] {
	return []column[podview.Pod]{
		{"NAMESPACE", len("kube-system"), func(p *podview.Pod) string { return cmp.Or(p.Namespace, "-") }, nil},
		{"POD", 32, func(p *podview.Pod) string { return cmp.Or(p.Name, string(p.UID)) }, nil},
		{"STATE", len(podview.NotReady), func(p *podview.Pod) string { return p.State }, podColor},
		{"RUNNING", len("RUNNING"), func(p *podview.Pod) string { return fmt.Sprintf("%d/%d", p.Running, p.Total) }, nil},
		{"RESTARTS", len("RESTARTS"), func(p *podview.Pod) string { return strconv.FormatUint(uint64(p.Restarts), 10) }, nil},
		{"LAST EVENT", 26, lastEvent, nil},
		{"AGO", 4, func(p *podview.Pod) string {
			if p.LastEvent == nil {
				return "-"
			}
			return ago(p.LastEvent.ObservedAt)
		}, nil},
		{"KNOWN", 5, func(p *podview.Pod) string { return ago(p.CurrentAsOf) }, nil},
		{"DETAILS", 0, podDetails, nil},
	}
}

func widePodColumns() []column[podview.Pod] {
	columns := podColumns()
	last := len(columns) - 1
	return append(columns[:last:last],
		column[podview.Pod]{"IP", 15, func(p *podview.Pod) string { return cmp.Or(strings.Join(p.IPs, ","), "-") }, nil},
		column[podview.Pod]{"POD UID", 36, func(p *podview.Pod) string { return string(p.UID) }, nil},
		columns[last])
}

// lastEvent includes the name of the container.
func lastEvent(p *podview.Pod) string {
	ev := p.LastEvent
	switch {
	case ev == nil:
		return "-"
	case ev.ContainerID == "":
		return string(ev.Type)
	}
	return string(ev.Type) + " " + containerName(ev)
}

// podDetails returns what is wrong with the pod.
func podDetails(p *podview.Pod) string {
	var parts []string
	for _, c := range p.Newest() {
		switch {
		case c.State == pleg.StateRunning.String():
		case c.ExitCode != nil && c.Reason != "":
			parts = append(parts, fmt.Sprintf("%s exited %d (%s)", c.Name, *c.ExitCode, c.Reason))
		case c.ExitCode != nil:
			parts = append(parts, fmt.Sprintf("%s exited %d", c.Name, *c.ExitCode))
		default:
			parts = append(parts, c.Name+" "+c.State)
		}
	}
	if p.Error != "" {
		parts = append(parts, "inspection failed: "+p.Error)
	}
	return strings.Join(parts, ", ")
}

func podColor(p *podview.Pod) string {
	switch {
	case p.State == podview.Ready && p.Running == p.Total:
		return green
	case p.State == podview.Unknown:
		return red
	default:
		return yellow
	}
}

// ago returns the time since t in one unit, as kubectl does.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	switch d := max(0, time.Since(t)); {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}
