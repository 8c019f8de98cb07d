package inspector

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// State describes the inspections for other goroutines. It never changes.
type State struct {
	InFlight int
	// Overdue are the inspections in flight that are older than Options.HungAfter, the oldest
	// first, without their calls.
	Overdue []pleg.Inspection
	// Contradictions are the containers and sandboxes whose lists and statuses differ, the longest
	// first.
	Contradictions []pleg.Contradiction
	// Answered is the time at which an inspection last succeeded, or failed before it was as old as
	// Options.HungAfter; zero before the first.
	Answered time.Time
}

// State returns the present state. It is safe for concurrent use.
func (i *Inspector) State() State { return *i.state.Load() }

// oldest returns the age in seconds of the first of the overdue inspections; 0 if there is none.
func (i *Inspector) oldest() float64 {
	if overdue := i.State().Overdue; len(overdue) > 0 {
		return time.Since(overdue[0].Started).Seconds()
	}
	return 0
}

// publish publishes the state, reports the inspections that hang, and returns the time at which it
// is due again; zero if never. The loop calls it before each step.
func (i *Inspector) publish(now time.Time, settled chan<- stage.Settled) (next time.Time) {
	s, hanging := &i.flights, 0
	state := State{InFlight: len(s.all), Answered: i.answered, Contradictions: i.lasting()}
	for _, f := range s.all {
		if due := f.started.Add(s.hungAfter); due.After(now) {
			next = stage.Earlier(next, due)
			break // the others began later
		}
		hung := f.hung(now, s.hungAfter)
		if hung {
			hanging++
		}
		state.Overdue = append(state.Overdue, pleg.Inspection{
			UID: f.change.UID, Namespace: f.change.Pod.Namespace, Name: f.change.Pod.Name, Started: f.started, Hung: hung,
		})
		if f.reported {
			continue
		}
		if at := f.started.Add(hopeless * s.hungAfter); !hung && at.After(now) {
			next = stage.Earlier(next, at)
			continue
		}
		f.reported = true
		settled <- stage.Settled{UID: f.change.UID, How: stage.Hangs}
	}
	i.state.Store(&state)
	i.metrics.inFlight.Set(float64(state.InFlight))
	i.metrics.hung.Set(float64(hanging))
	return next
}
