package view

import (
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The ANSI colors in use, for "\x1b[" + color + "m".
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Faint  = "2"
)

// EventColor returns the color of an event.
func EventColor(ev *fleet.Event) string {
	switch eventtype.SeverityOf(&ev.Event) {
	case eventtype.SeverityGood:
		return Green
	case eventtype.SeverityBad:
		return Red
	case eventtype.SeverityRoutine:
		return Faint
	default:
		return Yellow
	}
}

// PodColor returns the color of the state of a pod.
func PodColor(p *Pod) string {
	return map[verdict.Severity]string{verdict.OK: Green, verdict.Warning: Yellow, verdict.Problem: Red}[p.Severity]
}

// ContainerName returns the name of the container of an event; a sandbox in brackets,
// which a container name cannot contain.
func ContainerName(ev *pleg.Event) string {
	if ev.Sandbox {
		return "(sandbox)"
	}
	return ev.ContainerName
}

// What returns the event in a word or two, such as "died 137".
func What(ev *fleet.Event) string {
	name := eventtype.Of(ev.Type).Name
	word := name[strings.LastIndexByte(name, '.')+1:]
	if ev.ExitCode != nil {
		return fmt.Sprintf("%s %d", word, *ev.ExitCode)
	}
	return word
}

// Why returns the details of an event, such as "OOMKilled, ran 3m". Reasons that say no more than
// the exit code are left out.
func Why(ev *fleet.Event) string {
	if ev.Type == pleg.Gap {
		return GapText(ev) + "; the pods are current"
	}
	var parts []string
	if ev.Reason != "" && ev.Reason != "Completed" && ev.Reason != "Error" {
		parts = append(parts, ev.Reason)
	}
	if ev.Missed > 0 {
		parts = append(parts, verdict.Count(ev.Missed, "event")+" missed")
	}
	if !ev.StartedAt.IsZero() && !ev.FinishedAt.Before(ev.StartedAt) {
		parts = append(parts, "ran "+verdict.Span(ev.FinishedAt.Sub(ev.StartedAt)))
	}
	return strings.Join(parts, ", ")
}

// Words is an event with its words for people.
type Words struct {
	pleg.Event
	Severity string `json:"severity"`
	What     string `json:"what"`
	Why      string `json:"why"`
	// Pod is NAMESPACE/NAME, Container the name of the container, or "(sandbox)".
	Pod       string `json:"pod"`
	Container string `json:"container"`
}

// WordsOf returns the words of an event.
func WordsOf(ev pleg.Event) Words {
	of := fleet.Event{Event: ev}
	return Words{
		Event: ev, Severity: eventtype.SeverityOf(&ev).String(), What: What(&of), Why: Why(&of),
		Pod: fullName(ev.PodNamespace, ev.PodName, ev.PodUID), Container: ContainerName(&ev),
	}
}

// GapText describes a Gap.
func GapText(ev *fleet.Event) string {
	missing := "events are missing: "
	switch {
	case ev.Missed == 1:
		missing = "1 event is missing: "
	case ev.Missed > 1:
		missing = fmt.Sprintf("%d %s", ev.Missed, missing)
	}
	switch ev.Reason {
	case pleg.OtherEpoch:
		return missing + "the daemon was restarted"
	case fleet.NodeNew:
		return "the node is new"
	case fleet.NodeGone:
		return "the node is gone, with its pods"
	case pleg.Stopped:
		return missing + "the daemon ended before they were read"
	}
	return missing + "the history no longer has them"
}

func eventDetails(ev *fleet.Event) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	switch {
	case ev.Type == pleg.Synced:
		add("all earlier events are printed; what follows happens now")
	case ev.Type == pleg.Gap:
		add("%s", GapText(ev))
	case ev.Missed > 0:
		add("%s missed", verdict.Count(ev.Missed, "event"))
	case ev.ExitCode != nil && ev.Reason != "":
		add("exit %d, %s", *ev.ExitCode, ev.Reason)
	case ev.ExitCode != nil:
		add("exit %d", *ev.ExitCode)
	case ev.Reason != "":
		add("%s", ev.Reason)
	}
	if late := ev.ObservedAt.Sub(ev.FinishedAt); !ev.FinishedAt.IsZero() && late >= time.Minute {
		add("finished %s", clock(ev.FinishedAt, time.DateTime))
	}
	if ev.Replayed {
		add("replayed")
	}
	return strings.Join(parts, ", ")
}

// podDetails returns the problems of the pod, beginning with why its state is not known.
func podDetails(p *Pod) string {
	var parts []string
	if complaint := p.Complaint(time.Now()); complaint != "" {
		parts = append(parts, complaint)
	} else if p.Uninspected {
		parts = append(parts, "not inspected yet")
	}
	if now := time.Now(); p.Stale && now.Sub(p.CurrentAsOf) >= time.Second {
		parts = append(parts, "stale for "+Ago(p.CurrentAsOf, now))
	}
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

// Complaint returns the problem of a pod's inspections; "" if there is none. The most important
// words come first: a narrow column shows only these.
func (p *Pod) Complaint(now time.Time) string {
	if p.Finding == nil {
		return ""
	}
	return p.Finding.Complaint(now)
}

// Ago returns the time since t in one unit, as kubectl does; "-" if t is zero.
func Ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return verdict.Span(now.Sub(t))
}
