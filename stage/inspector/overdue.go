package inspector

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// observed is what other goroutines learn of the inspections.
type observed struct {
	inFlight atomic.Int64
	// overdue are the inspections in flight that are older than Options.HungAfter, the oldest
	// first; nil if there are none.
	overdue atomic.Pointer[[]pleg.Inspection]
	// answered is when the runtime last showed that it works, in nanoseconds; 0 if it has not.
	answered atomic.Int64
}

// Answered returns when an inspection last succeeded, or failed before it was as old as
// Options.HungAfter; zero before the first. It is safe for concurrent use.
func (i *Inspector) Answered() (at time.Time) {
	if answered := i.answered.Load(); answered != 0 {
		at = time.Unix(0, answered)
	}
	return at
}

// InFlight returns the number of inspections in flight. It is safe for concurrent use.
func (i *Inspector) InFlight() int { return int(i.inFlight.Load()) }

// Overdue returns the inspections in flight that are older than Options.HungAfter, the
// oldest first, without their calls. It is safe for concurrent use.
func (i *Inspector) Overdue() []pleg.Inspection {
	if overdue := i.overdue.Load(); overdue != nil {
		return slices.Clone(*overdue)
	}
	return nil
}

// oldest returns the age in seconds of the first of them; 0 if there is none.
func (i *Inspector) oldest() float64 {
	if overdue := i.overdue.Load(); overdue != nil {
		return time.Since((*overdue)[0].Started).Seconds()
	}
	return 0
}

// publishFlights publishes the inspections in flight, reports hung ones, and returns when it is due
// again; zero if never. The loop calls it before each step.
func (i *Inspector) publishFlights(now time.Time, settled chan<- stage.Settled) (next time.Time) {
	s := &i.flights
	var overdue []pleg.Inspection
	for _, f := range s.all {
		if due := f.started.Add(s.hungAfter); due.After(now) {
			next = stage.Earlier(next, due)
			break // the others began later
		}
		hung := f.hung(now, s.hungAfter)
		overdue = append(overdue, pleg.Inspection{
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
		settled <- stage.Settled{UID: f.change.UID, Hangs: true}
	}
	i.inFlight.Store(int64(len(s.all)))
	i.metrics.publish(len(s.all), overdue)
	if len(overdue) == 0 {
		i.overdue.Store(nil)
	} else {
		i.overdue.Store(new(overdue))
	}
	return next
}
