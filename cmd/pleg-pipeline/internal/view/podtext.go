package view

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func podColumns() []column[Pod] {
	return []column[Pod]{
		{name: "NAMESPACE", width: len("kube-system"), value: func(p *Pod) string { return cmp.Or(p.Namespace, "-") }, least: 9},
		{name: "POD", width: 32, value: func(p *Pod) string { return cmp.Or(p.Name, string(p.UID)) }, least: 16},
		{name: "STATE", width: len(NotReady), value: func(p *Pod) string { return p.State }, color: podColor},
		{name: "RUNNING", width: len("RUNNING"), value: func(p *Pod) string { return fmt.Sprintf("%d/%d", p.Running, p.Total) }},
		{name: "RESTARTS", width: len("RESTARTS"), value: func(p *Pod) string { return strconv.FormatUint(uint64(p.Restarts), 10) }},
		{name: "AGE", width: 4, value: func(p *Pod) string { return ago(p.CreatedAt()) }},
		{name: "KNOWN", width: len("KNOWN"), value: func(p *Pod) string { return ago(p.CurrentAsOf) }},
		{name: "DETAILS", value: podDetails},
	}
}

func widePodColumns() []column[Pod] {
	columns := podColumns()
	last := len(columns) - 1
	return append(columns[:last:last],
		column[Pod]{name: "LAST EVENT", width: 26, value: lastEvent},
		column[Pod]{name: "AGO", width: 4, value: func(p *Pod) string {
			if p.LastEvent == nil {
				return "-"
			}
			return ago(p.LastEvent.ObservedAt)
		}},
		column[Pod]{name: "IP", width: 15, value: func(p *Pod) string { return cmp.Or(strings.Join(p.IPs, ","), "-") }},
		column[Pod]{name: "POD UID", width: 36, value: func(p *Pod) string { return string(p.UID) }},
		columns[last])
}

// lastEvent includes the name of the container.
func lastEvent(p *Pod) string {
	ev := p.LastEvent
	switch {
	case ev == nil:
		return "-"
	case ev.ContainerID == "":
		return string(ev.Type)
	}
	return string(ev.Type) + " " + containerName(ev)
}

// podDetails returns what is wrong with the pod, the reason why it is not known first.
func podDetails(p *Pod) string {
	parts := inspectionDetails(p)
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
	return strings.Join(parts, ", ")
}

// inspectionDetails returns what is wrong with the inspections of the pod.
func inspectionDetails(p *Pod) (parts []string) {
	switch i, q := p.Inspection, p.Quarantine; {
	case i != nil && i.Hung:
		parts = append(parts, "inspection hangs for "+ago(i.Since)+inCall(i))
	case i != nil:
		parts = append(parts, "inspection takes "+ago(i.Since)+" so far"+inCall(i))
	case q != nil:
		next := "next soon"
		if wait := time.Until(q.NextTry); wait > 0 {
			next = "next in " + Span(wait)
		}
		parts = append(parts, number(q.Hung, "inspection", "inspections")+" hung, "+next)
	case p.Error != "":
		parts = append(parts, "inspection failed: "+p.Error)
	case p.Uninspected:
		parts = append(parts, "not inspected yet")
	}
	if p.Stale {
		parts = append(parts, "stale for "+ago(p.CurrentAsOf))
	}
	return parts
}

// inCall names the call that an inspection waits for.
func inCall(i *Inspection) string {
	switch {
	case i.Call == "":
		return ""
	case i.Container == "":
		return " (" + i.Call + ")"
	}
	return " (" + i.Call + " of " + i.Container + ")"
}

func number(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func podColor(p *Pod) string {
	switch {
	case p.Stale, p.Inspection != nil, p.Error != "":
		return Red
	case p.State == Ready && p.Running == p.Total:
		return Green
	case p.State == Unknown:
		return Red
	default:
		return Yellow
	}
}

// ago returns the time since t; "-" if t is zero.
func ago(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Span(time.Since(t))
}
