package top

import (
	"cmp"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
)

// order is what the pods are sorted by.
type order int

const (
	byTrouble order = iota // what is wrong, then the busiest, then the most restarted
	byEvents
	byRestarts
	byName
	orders // the number of orders
)

func (o order) String() string {
	return [...]string{"trouble", "events", "restarts", "name"}[o]
}

// compare orders two pods. Pods that are equal are in the order of their names, so that
// rows do not move without a reason.
func (o order) compare(a, b *pod, reverse bool) int {
	var c int
	switch o {
	case byTrouble:
		c = cmp.Or(cmp.Compare(a.trouble(), b.trouble()), a.longer(b), cmp.Compare(len(b.recent), len(a.recent)), cmp.Compare(b.Restarts, a.Restarts))
	case byEvents:
		c = cmp.Compare(len(b.recent), len(a.recent))
	case byRestarts:
		c = cmp.Compare(b.Restarts, a.Restarts)
	}
	c = cmp.Or(c, cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	if reverse {
		return -c
	}
	return c
}

// longer orders two pods by the ages of their inspections, the oldest first.
func (p *pod) longer(other *pod) int {
	if p.Inspection == nil || other.Inspection == nil {
		return 0
	}
	return p.Inspection.Since.Compare(other.Inspection.Since)
}

// The troubles of a pod, the worst first.
const (
	hung = iota
	quarantined
	failed
	unknown
	notReady
	degraded // some containers do not run
	fine
)

func (p *pod) trouble() int {
	switch {
	case p.Inspection != nil:
		return hung
	case p.Quarantine != nil:
		return quarantined
	case p.Error != "":
		return failed
	case p.State == view.Unknown:
		return unknown
	case p.State == view.NotReady:
		return notReady
	case p.Running < p.Total:
		return degraded
	}
	return fine
}

// word is the state of the pod in the table.
func (p *pod) word() string {
	switch p.trouble() {
	case hung:
		if !p.Inspection.Hung {
			return "slow"
		}
		return "hung"
	case quarantined:
		return "quarantine"
	case failed:
		return "failed"
	case degraded:
		return "degraded"
	}
	return p.State
}

// matches reports whether each word of a filter is in the pod's names, its state or the
// name of a container.
func (p *pod) matches(filter string) bool {
	if filter == "" {
		return true
	}
	text := []string{p.Node, p.Namespace + "/" + p.Name, string(p.UID), p.word(), p.State}
	for _, c := range p.Containers {
		text = append(text, c.Name)
	}
	return hasWords(strings.Join(text, " "), filter)
}

func eventMatches(ev Event, filter string) bool {
	return filter == "" || hasWords(strings.Join([]string{ev.Node, ev.PodNamespace + "/" + ev.PodName, string(ev.PodUID), ev.ContainerName, what(ev), ev.Reason}, " "), filter)
}

func hasWords(text, filter string) bool {
	text = strings.ToLower(text)
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
