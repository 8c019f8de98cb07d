package top

import (
	"errors"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
)

// latest returns why the pod cannot be inspected, or else its last event.
func (p *pod) latest(now time.Time) string {
	if complaint := p.Complaint(now); complaint != "" {
		return complaint
	}
	if p.last == nil {
		return "-"
	}
	return strings.TrimSpace(view.ContainerName(&p.last.Event) + " " + view.What(p.last) + " " + view.Why(p.last))
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
	return hasWords(filter, ev.Node, ev.PodNamespace+"/"+ev.PodName, string(ev.PodUID), ev.ContainerName, view.What(&ev), ev.Reason)
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

// verdict returns the verdict on the pipeline or the cluster, or why that is not known, and what to
// do.
func (m *model) verdict(now time.Time) (text, advice string, severity verdict.Severity) {
	var v verdict.Verdict
	silent, known := errors.AsType[verdict.Error](m.err)
	switch {
	case known:
		v = verdict.New([]verdict.Finding{silent.Finding}, "")
	case m.disconnected != "":
		return "DISCONNECTED: " + m.disconnected, "", verdict.Problem
	case m.err != nil:
		return "NO ANSWER: " + m.err.Error(), "", verdict.Problem
	case !m.loaded:
		return "waiting for the first answer", "", verdict.OK
	default:
		v = m.state.Verdict(now)
	}
	if len(v.Findings) > 0 {
		advice = v.Findings[0].Advice
	}
	return v.Text, advice, v.Severity
}
