//go:build linux

package e2e_test

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// outage is a time in which an instance did not run. Lists after it show the
// states before and after it, not the steps in between.
type outage struct {
	from, to time.Time
	// queued is set if CRI events queued up meanwhile. Then the instance may report
	// any step of the outage that no list showed first.
	queued bool
}

func (o outage) covers(e lab.Entry) bool { return e.Began.After(o.from) && e.Ended.Before(o.to) }

// expected returns the entries of a pod that an instance must report, if it has
// reported these events so far. Codeless containers were removed during the
// outage: the instance need not know their exit codes.
func (o outage) expected(entries []lab.Entry, events []pleg.Event) (want []lab.Entry, codeless map[string]bool) {
	codeless = make(map[string]bool)
	if o.to.IsZero() {
		return entries, codeless
	}
	var ids []string
	byID := make(map[string][]lab.Entry)
	for _, e := range entries {
		if e.Step == lab.Created {
			continue
		}
		if byID[e.ContainerID] == nil {
			ids = append(ids, e.ContainerID)
		}
		byID[e.ContainerID] = append(byID[e.ContainerID], e)
	}
	for _, id := range ids {
		steps, code := o.visible(byID[id])
		if o.queued {
			steps = slices.DeleteFunc(byID[id], func(e lab.Entry) bool {
				return !slices.Contains(steps, e) && !slices.ContainsFunc(events, func(ev pleg.Event) bool {
					return string(ev.ContainerID) == id && string(ev.Type) == "Container"+string(e.Step)
				})
			})
		}
		codeless[id] = !code
		want = append(want, steps...)
	}
	return want, codeless
}

// visible returns the steps of one container that lists show, and whether they
// show its exit code. The rule is the kubelet's: a container that ran before the
// outage and is gone after it has died and was removed.
func (o outage) visible(steps []lab.Entry) (shown []lab.Entry, code bool) {
	var before, after lab.Step
	for _, e := range steps {
		if o.covers(e) {
			after = e.Step
		} else if e.Ended.Before(o.from) {
			before = e.Step
		}
	}
	for _, e := range steps {
		listed := !o.covers(e) || e.Step == after && after != lab.Removed
		inferred := before == lab.Started && after == lab.Removed && e.Step != lab.Started
		if listed || inferred || before == lab.Died && e.Step == lab.Removed {
			shown = append(shown, e)
		}
	}
	died := slices.ContainsFunc(steps, func(e lab.Entry) bool { return e.Step == lab.Died && o.covers(e) })
	return shown, !died || after != lab.Removed
}
