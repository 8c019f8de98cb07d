package inspector

import (
	"context"
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
	// turn is that of [width.turnOf].
	turn int
	// hung is set once it is as old as Options.HungAfter.
	hung bool
	// abandoned is set once it was settled although it has not returned.
	abandoned bool
}

// over reports whether the call's context has ended.
func (f *flight) over(now time.Time) bool { return !now.Before(f.ends) }

// slow reports whether it counts for the half of the inspectors: it is hung, or
// the inspection of the same pod before it was.
func (f *flight) slow() bool { return f.hung || f.change.Hung > 0 }

// inFlight has the inspections in progress, abandoned ones included, and publishes
// when the oldest began.
type inFlight struct {
	byPod map[pleg.PodUID]*flight
	// hung and abandoned count inspections. An abandoned one does not count as hung.
	hung, abandoned int
	oldest          atomic.Pointer[time.Time]
}

// len returns the number of inspections that take an inspector's place.
func (i *inFlight) len() int { return len(i.byPod) - i.abandoned }

func (i *inFlight) add(f *flight) {
	i.byPod[f.change.UID] = f
	if len(i.byPod) == 1 {
		i.oldest.Store(&f.started)
	}
}

func (i *inFlight) remove(uid pleg.PodUID) *flight {
	ended := i.byPod[uid]
	delete(i.byPod, uid)
	switch {
	case ended.abandoned:
		i.abandoned--
	case ended.hung:
		i.hung--
	}
	if ended.started.After(*i.oldest.Load()) {
		return ended
	}
	var next *time.Time
	for _, f := range i.byPod {
		if next == nil || f.started.Before(*next) {
			next = &f.started
		}
	}
	i.oldest.Store(next)
	return ended
}

// slow returns the number of inspections that count for the half of the
// inspectors and that match.
func (i *inFlight) slow(matches func(*flight) bool) int {
	n := 0
	for _, f := range i.byPod {
		if f.slow() && !f.abandoned && matches(f) {
			n++
		}
	}
	return n
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
