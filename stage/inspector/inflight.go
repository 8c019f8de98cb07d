package inspector

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// flight is one inspection in progress.
type flight struct {
	change  stage.Change
	started time.Time
	// ends is when the call's context ends, or has ended.
	ends   time.Time
	cancel context.CancelCauseFunc
	// superseded is set once the inspection was cancelled because its pod is gone.
	superseded bool
	// turn is that of [width.turnOf].
	turn int
	// overtaken is set once an inspection that began later has ended in at most half
	// of this one's age.
	overtaken bool
	// lent is set once another pod may be inspected in its stead, hung once it also is
	// as old as Options.HungAfter.
	lent, hung bool
	// abandoned is set once it was settled although it has not returned.
	abandoned bool
	// logAt is when it is logged next if it hangs.
	logAt time.Time
}

// over reports whether the call's context has ended.
func (f *flight) over(now time.Time) bool { return !now.Before(f.ends) }

func (f *flight) age(now time.Time) time.Duration { return now.Sub(f.started) }

// inFlight has the inspections in progress and publishes when the oldest began.
type inFlight struct {
	// flights take a place each, in the order in which they began.
	flights []*flight
	// abandoned inspections take none.
	abandoned map[pleg.PodUID]*flight
	// lent, hung and retries count flights.
	lent, hung, retries int
	oldest              atomic.Pointer[time.Time]
}

func (i *inFlight) len() int { return len(i.flights) }

func (i *inFlight) all() int { return len(i.flights) + len(i.abandoned) }

// each ranges over all inspections in progress, abandoned ones too.
func (i *inFlight) each() iter.Seq[*flight] {
	return func(yield func(*flight) bool) {
		for _, f := range i.flights {
			if !yield(f) {
				return
			}
		}
		for _, f := range i.abandoned {
			if !yield(f) {
				return
			}
		}
	}
}

func (i *inFlight) add(f *flight) {
	i.flights = append(i.flights, f)
	if f.change.Retry {
		i.retries++
	}
	if i.all() == 1 {
		i.oldest.Store(&f.started)
	}
}

// find returns the pod's inspection in flight that was not abandoned, or nil.
func (i *inFlight) find(uid pleg.PodUID) *flight {
	if n := i.index(uid); n >= 0 {
		return i.flights[n]
	}
	return nil
}

func (i *inFlight) index(uid pleg.PodUID) int {
	return slices.IndexFunc(i.flights, func(f *flight) bool { return f.change.UID == uid })
}

// remove removes an inspection that has returned.
func (i *inFlight) remove(uid pleg.PodUID) *flight {
	f := i.abandoned[uid]
	if f != nil {
		delete(i.abandoned, uid)
	} else {
		f = i.leave(uid)
	}
	if !f.started.After(*i.oldest.Load()) {
		i.publishOldest()
	}
	return f
}

// abandon frees the place of an inspection that has not returned.
func (i *inFlight) abandon(f *flight) {
	i.leave(f.change.UID)
	f.abandoned = true
	i.abandoned[f.change.UID] = f
}

func (i *inFlight) leave(uid pleg.PodUID) *flight {
	n := i.index(uid)
	f := i.flights[n]
	i.flights = slices.Delete(i.flights, n, n+1)
	if f.lent {
		i.lent--
	}
	if f.hung {
		i.hung--
	}
	if f.change.Retry {
		i.retries--
	}
	return f
}

func (i *inFlight) publishOldest() {
	var oldest *time.Time
	if len(i.flights) > 0 {
		oldest = &i.flights[0].started
	}
	for _, f := range i.abandoned {
		if oldest == nil || f.started.Before(*oldest) {
			oldest = &f.started
		}
	}
	i.oldest.Store(oldest)
}

// overtake marks those that began before f, which has ended by itself: if f took at
// most half of their age, they do not wait for the same thing.
func (i *inFlight) overtake(f *flight, took time.Duration, now time.Time) {
	for _, older := range i.flights {
		if !older.started.Before(f.started) {
			return
		}
		older.overtaken = older.overtaken || 2*took <= older.age(now)
	}
}

// age returns the age of the oldest call in seconds; 0 if there is none. It is safe
// for concurrent use.
func (i *inFlight) age() float64 {
	oldest := i.oldest.Load()
	if oldest == nil {
		return 0
	}
	return time.Since(*oldest).Seconds()
}
