package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// what returns what happened, in one or two words.
func what(ev fleet.Event) string {
	name := ev.Type.Info().Name
	word := name[strings.LastIndexByte(name, '.')+1:]
	if ev.ExitCode != nil {
		return fmt.Sprintf("%s %d", word, *ev.ExitCode)
	}
	return word
}

// why returns what else an event says.
func why(ev fleet.Event) string {
	var parts []string
	if ev.Reason != "" && ev.Reason != "Completed" && ev.Reason != "Error" {
		parts = append(parts, ev.Reason)
	}
	if ev.Missed > 0 {
		parts = append(parts, fmt.Sprintf("%d events missed", ev.Missed))
	}
	if !ev.StartedAt.IsZero() && !ev.FinishedAt.Before(ev.StartedAt) {
		parts = append(parts, "ran "+view.Span(ev.FinishedAt.Sub(ev.StartedAt)))
	}
	return strings.Join(parts, ", ")
}

// latest returns why the pod cannot be inspected, or else its last event.
func (p *pod) latest(now time.Time) string {
	if complaint := p.Complaint(now); complaint != "" {
		return complaint
	}
	if p.last == nil {
		return "-"
	}
	return strings.TrimSpace(view.ContainerName(&p.last.Event) + " " + what(*p.last) + " " + why(*p.last))
}

// matches reports whether each word of a filter is in the pod's names, its state or the
// name of a container.
func (p *pod) matches(filter string) bool {
	text := []string{p.FullName(), string(p.UID), p.State}
	for _, c := range p.Containers {
		text = append(text, c.Name)
	}
	return hasWords(filter, text...)
}

func eventMatches(ev fleet.Event, filter string) bool {
	return hasWords(filter, ev.Node, ev.PodNamespace+"/"+ev.PodName, string(ev.PodUID), ev.ContainerName, what(ev), ev.Reason)
}

func hasWords(filter string, texts ...string) bool {
	text := strings.ToLower(strings.Join(texts, " "))
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// verdict says in one line how the pipeline or the cluster is, or why that is not known.
func (m *model) verdict(now time.Time) (text string, severity verdict.Severity) {
	var v verdict.Verdict
	switch {
	case m.disconnected != "":
		return "DISCONNECTED: " + m.disconnected, verdict.Problem
	case m.err != "":
		return "NO ANSWER: " + m.err, verdict.Problem
	case !m.known:
		return "waiting for the first answer", verdict.OK
	case m.nodes == nil:
		v = verdict.Of(m.status)
	default:
		pods := make([]view.Pod, 0, len(m.pods))
		for _, p := range m.pods {
			pods = append(pods, p.Pod)
		}
		v = view.ClusterVerdict(m.nodes.problem, pods, now)
	}
	return v.Text, v.Severity
}

// placesText returns how many inspections are in flight, of the places. Those that hang or
// are slow have lent their places, so there may be more.
func placesText(s pleg.Status) string {
	text := fmt.Sprintf("%d of %d", min(s.InFlight, s.Inspectors), s.Inspectors)
	if extra := s.InFlight - s.Inspectors; extra > 0 {
		text += fmt.Sprintf(" + %d extra", extra)
	}
	hung, _ := view.CountHung(s)
	if hung > 0 {
		text += fmt.Sprintf(", %d hung", hung)
	}
	if slow := len(s.Overdue) - hung; slow > 0 {
		text += fmt.Sprintf(", %d slow", slow)
	}
	return text
}
