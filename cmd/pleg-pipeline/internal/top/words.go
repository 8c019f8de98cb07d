package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// what returns what happened, in a word or two.
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
	if ev.Uninspected {
		parts = append(parts, "not inspected")
	}
	if !ev.StartedAt.IsZero() && !ev.FinishedAt.Before(ev.StartedAt) {
		parts = append(parts, "ran "+view.Span(ev.FinishedAt.Sub(ev.StartedAt)))
	}
	return strings.Join(parts, ", ")
}

// word is the state of the pod in the table.
func (p *pod) word() string {
	switch p.Trouble() {
	case view.Slow:
		if !p.Inspection.Hung {
			return "slow"
		}
		return "hung"
	case view.Quarantined:
		return "quarantine"
	case view.Failed:
		return "failed"
	case view.Degraded:
		return "degraded"
	}
	return p.State
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
	text := []string{p.FullName(), string(p.UID), p.word(), p.State}
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

// longList is the age at which a list in progress is a problem.
const longList = 5 * time.Second

// verdict says in one line how the pipeline or the cluster is. ok is false if something is
// wrong.
func (m *model) verdict(now time.Time) (text string, ok bool) {
	s, relist := m.status, m.status.Relist
	switch {
	case m.disconnected != "":
		return "DISCONNECTED: " + m.disconnected, false
	case m.err != "":
		return "NO ANSWER: " + m.err, false
	case !m.known:
		return "waiting for the first answer", true
	case m.nodes != nil && m.nodes.problem != "":
		return "PROBLEM: " + m.nodes.problem, false
	case !s.Healthy && s.Err != nil:
		return "PROBLEM: " + s.Err.Error(), false
	case relist.Failures > 0 && relist.Err != nil:
		return fmt.Sprintf("PROBLEM: lists fail for %s: %v", view.Ago(relist.Failing, now), relist.Err), false
	case !relist.Started.IsZero() && now.Sub(relist.Started) > longList:
		return fmt.Sprintf("PROBLEM: the list of pods has been running for %s", view.Ago(relist.Started, now)), false
	}
	worst, sick := m.sick()
	switch {
	case sick == 1:
		return fmt.Sprintf("PROBLEM: %s %s", worst.FullName(), worst.Complaint(now)), false
	case sick > 1:
		return fmt.Sprintf("PROBLEM: %s %s; %d more", worst.FullName(), worst.Complaint(now), sick-1), false
	case m.nodes != nil:
		return "all nodes publish", true
	case s.Err != nil:
		return "healthy, but " + s.Err.Error(), false
	}
	return "healthy", true
}

// placesText returns how many inspections are in flight, of the places. Those that hang or
// are slow have lent their places, so there may be more.
func placesText(s pleg.Status) string {
	text := fmt.Sprintf("%d of %d", min(s.InFlight, s.Inspectors), s.Inspectors)
	if extra := s.InFlight - s.Inspectors; extra > 0 {
		text += fmt.Sprintf(" + %d extra", extra)
	}
	return text
}

// overdue returns how many of the inspections in flight are hung, and how many only slow.
func overdue(s pleg.Status) (hung, slow int) {
	for _, i := range s.Overdue {
		if i.Hung {
			hung++
		}
	}
	return hung, len(s.Overdue) - hung
}
