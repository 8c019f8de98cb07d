package inspector

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// observed is what other goroutines learn of the inspections in flight.
type observed struct {
	inFlight atomic.Int64
	// oldest is when the oldest began, nil if there is none.
	oldest  atomic.Pointer[time.Time]
	overdue atomic.Pointer[[]pleg.Inspection]
	// recent are the last inspections, one of each pod, the oldest first; took is the median of
	// their durations and the end of the newest.
	recent []recent
	took   atomic.Pointer[median]
}

// recent is an inspection that has ended by itself.
type recent struct {
	uid  pleg.PodUID
	took time.Duration
	at   time.Time
}

// median is the median of some durations at a time.
type median struct {
	of time.Duration
	at time.Time
}

const (
	// maxRecent is the number of inspections whose median is published, recentFor how long it
	// counts.
	maxRecent = 8
	recentFor = time.Minute
	// minRecent is how many a median needs: one slow pod is no slow runtime.
	minRecent = 3
)

// ended notes that the inspection of a pod has ended by itself.
func (o *observed) ended(uid pleg.PodUID, took time.Duration, now time.Time) {
	o.recent = slices.DeleteFunc(o.recent, func(r recent) bool { return r.uid == uid || now.Sub(r.at) >= recentFor })
	o.recent = append(o.recent, recent{uid, took, now})
	o.recent = o.recent[max(0, len(o.recent)-maxRecent):]
	if len(o.recent) < minRecent {
		o.took.Store(nil)
		return
	}
	byTook := slices.SortedFunc(slices.Values(o.recent), func(a, b recent) int { return cmp.Compare(a.took, b.took) })
	o.took.Store(&median{byTook[len(byTook)/2].took, now})
}

// Took returns the median of the last inspections of different pods that ended by themselves; 0
// if there were not several in a minute. It is safe for concurrent use.
func (i *Inspector) Took(now time.Time) time.Duration {
	if last := i.observed.took.Load(); last != nil && now.Sub(last.at) < recentFor {
		return last.of
	}
	return 0
}

// age returns the age of the oldest call in seconds; 0 if there is none. It is safe
// for concurrent use.
func (o *observed) age() float64 {
	oldest := o.oldest.Load()
	if oldest == nil {
		return 0
	}
	return time.Since(*oldest).Seconds()
}

// InFlight returns the number of inspections in flight. It is safe for concurrent use.
func (i *Inspector) InFlight() int { return int(i.observed.inFlight.Load()) }

// Overdue returns the inspections in flight that are older than Options.HungAfter, the
// oldest first, without their calls. It is safe for concurrent use.
func (i *Inspector) Overdue() []pleg.Inspection {
	if overdue := i.observed.overdue.Load(); overdue != nil {
		return slices.Clone(*overdue)
	}
	return nil
}

// publishFlights publishes the inspections in flight, reports those that hang, and returns
// when it is due again; zero if never. The loop calls it before each step.
func (i *Inspector) publishFlights(now time.Time, settled chan<- stage.Settled) (next time.Time) {
	o, s := &i.observed, &i.flights
	i.metrics.publish(s, now)
	o.inFlight.Store(int64(len(s.all)))
	if len(s.all) == 0 {
		o.oldest.Store(nil)
	} else {
		o.oldest.Store(&s.all[0].started)
	}
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
	o.overdue.Store(&overdue)
	return next
}
