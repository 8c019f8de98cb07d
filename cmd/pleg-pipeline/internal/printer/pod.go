package printer

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/podview"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func podColumns() []column[podview.Pod] {
	return []column[podview.Pod]{
		{"NAMESPACE", len("kube-system"), func(p *podview.Pod) string { return orDash(p.Namespace) }, nil},
		{"POD", 32, func(p *podview.Pod) string {
			if p.Name == "" {
				return string(p.UID)
			}
			return p.Name
		}, nil},
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
		column[podview.Pod]{"IP", 15, func(p *podview.Pod) string { return orDash(strings.Join(p.IPs, ",")) }, nil},
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
