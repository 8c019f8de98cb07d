package top

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// what returns what happened, in a word or two.
func what(ev Event) string {
	name := ev.Type.Info().Name
	word := name[strings.LastIndexByte(name, '.')+1:]
	if ev.ExitCode != nil {
		return fmt.Sprintf("%s %d", word, *ev.ExitCode)
	}
	return word
}

// why returns what else an event says.
func why(ev Event) string {
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

// container returns a sandbox in brackets, which a container name cannot have.
func container(ev Event) string {
	if ev.Sandbox {
		return "(sandbox)"
	}
	return ev.ContainerName
}

// placesText returns how many inspections are in flight, of the places. Those that hang or
// are slow have lent their places, so there may be more.
func placesText(s pleg.Status) string {
	text := fmt.Sprintf("%d of %d", min(s.InFlight, s.Width), s.Width)
	if extra := s.InFlight - s.Width; extra > 0 {
		text += fmt.Sprintf(" + %d extra", extra)
	}
	return text
}

// name returns namespace/name, or the UID, after the node if there are many.
func (p *pod) name() string {
	name := p.Namespace + "/" + p.Name
	if p.Name == "" {
		name = string(p.UID)
	}
	if p.Node != "" {
		return p.Node + " " + name
	}
	return name
}

// since returns the time since t; "-" if t is zero.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return view.Span(now.Sub(t))
}

// since returns the age of the pod's newest sandbox.
func (p *pod) age(now time.Time) string {
	var newest time.Time
	for _, s := range p.Sandboxes {
		if s.CreatedAt != nil && s.CreatedAt.After(newest) {
			newest = *s.CreatedAt
		}
	}
	return since(newest, now)
}

// complaint says what is wrong with the inspections of a pod; "" if nothing is. What
// matters most comes first: a narrow column has only that.
func (p *pod) complaint(now time.Time) string {
	switch i, q := p.Inspection, p.Quarantine; {
	case i != nil && i.Hung:
		return fmt.Sprintf("hangs for %s in %s", since(i.Since, now), inCall(i))
	case i != nil:
		return fmt.Sprintf("takes %s in %s", since(i.Since, now), inCall(i))
	case q != nil && q.Hung == 1:
		return fmt.Sprintf("next try in %s, the inspection hung", view.Span(q.NextTry.Sub(now)))
	case q != nil:
		return fmt.Sprintf("next try in %s, %d inspections hung", view.Span(q.NextTry.Sub(now)), q.Hung)
	case p.Error != "":
		return "inspection failed: " + p.Error
	}
	return ""
}

func inCall(i *view.Inspection) string {
	switch {
	case i.Call == "":
		return "its inspection"
	case i.Container == "":
		return i.Call
	}
	return i.Call + " of " + i.Container
}

// verdict says in one line how the pipeline is. ok is false if something is wrong.
func (m *model) verdict(now time.Time) (text string, ok bool) {
	relist := m.status.Relist
	switch {
	case m.disconnected != "":
		return "DISCONNECTED: " + m.disconnected, false
	case m.err != "":
		return "NO ANSWER: " + m.err, false
	case !m.known:
		return "waiting for the first answer", true
	case m.nodes != nil:
		return m.nodes.verdict(m, now)
	case !m.status.Healthy && m.status.Err != nil:
		return "PROBLEM: " + m.status.Err.Error(), false
	case relist.Failures > 0 && relist.Err != nil:
		return fmt.Sprintf("PROBLEM: lists fail for %s: %v", since(relist.Failing, now), relist.Err), false
	case !relist.Started.IsZero() && now.Sub(relist.Started) > longList:
		return fmt.Sprintf("PROBLEM: the list of pods has been running for %s", since(relist.Started, now)), false
	}
	if worst := m.worst(); worst != nil {
		return m.problem(worst, now), false
	}
	if m.status.Err != nil {
		return "healthy, but " + m.status.Err.Error(), false
	}
	return "healthy", true
}

// problem says what is wrong with the worst pod, and how many others there are.
func (m *model) problem(worst *pod, now time.Time) string {
	text := fmt.Sprintf("PROBLEM: %s %s", worst.name(), worst.complaint(now))
	if n := m.sick() - 1; n > 0 {
		text += fmt.Sprintf("; %d more", n)
	}
	return text
}

// longList is the age at which a list in progress is a problem.
const longList = 5 * time.Second

// worst returns the pod whose inspections are in the worst state for the longest time, or
// nil.
func (m *model) worst() *pod {
	var worst *pod
	for _, p := range m.pods {
		if p.trouble() <= failed && (worst == nil || p.worse(worst)) {
			worst = p
		}
	}
	return worst
}

func (p *pod) worse(other *pod) bool {
	return cmp.Or(cmp.Compare(p.trouble(), other.trouble()), p.longer(other), cmp.Compare(p.UID, other.UID)) < 0
}

// sick returns the number of pods that cannot be inspected.
func (m *model) sick() int {
	n := 0
	for _, p := range m.pods {
		if p.trouble() <= failed {
			n++
		}
	}
	return n
}
