//go:build linux

package e2e_test

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// blind is a time in which an observer could not look, and after which lists can
// tell no more than the states before and after it.
type blind struct {
	from, to time.Time
	// mayTell is set for who follows the runtime's events too: of those that waited
	// each may tell its step, unless a list came before it.
	mayTell bool
}

func (b blind) covers(e lab.Entry) bool { return e.Began.After(b.from) && e.Ended.Before(b.to) }

// expected returns the steps of a pod's ledger that an observer is to tell of,
// which has told events so far, and the containers whose exit code it need not
// know, because they were removed while it did not look.
func (b blind) expected(entries []lab.Entry, events []pleg.Event) (told []lab.Entry, codeless map[string]bool) {
	codeless = make(map[string]bool)
	if b.to.IsZero() {
		return entries, codeless
	}
	var ids []string
	whole := make(map[string][]lab.Entry)
	for _, e := range entries {
		if e.Step == lab.Created {
			continue
		}
		if whole[e.ContainerID] == nil {
			ids = append(ids, e.ContainerID)
		}
		whole[e.ContainerID] = append(whole[e.ContainerID], e)
	}
	for _, id := range ids {
		steps, codes := b.collapse(whole[id])
		if b.mayTell {
			steps = slices.DeleteFunc(whole[id], func(e lab.Entry) bool {
				return !slices.Contains(steps, e) && !slices.ContainsFunc(events, func(ev pleg.Event) bool {
					return string(ev.ContainerID) == id && string(ev.Type) == "Container"+string(e.Step)
				})
			})
		}
		codeless[id] = !codes
		told = append(told, steps...)
	}
	return told, codeless
}

// collapse returns the steps of one container that lists can tell of, and whether
// they can tell its exit code. The rule is the kubelet's: what ran, and was gone
// when somebody looked again, has died and was removed.
func (b blind) collapse(steps []lab.Entry) (told []lab.Entry, code bool) {
	var before, after lab.Step
	for _, e := range steps {
		if b.covers(e) {
			after = e.Step
		} else if e.Ended.Before(b.from) {
			before = e.Step
		}
	}
	for _, e := range steps {
		seen := !b.covers(e) || e.Step == after && after != lab.Removed
		lost := before == lab.Started && after == lab.Removed && e.Step != lab.Started
		if seen || lost || before == lab.Died && e.Step == lab.Removed {
			told = append(told, e)
		}
	}
	inTheDark := slices.ContainsFunc(steps, func(e lab.Entry) bool { return e.Step == lab.Died && b.covers(e) })
	return told, !inTheDark || after != lab.Removed
}
