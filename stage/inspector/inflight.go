package inspector

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// flight is one inspection under way.
type flight struct {
	change  stage.Change
	started time.Time
	// ends is when the call's context ends, or has ended.
	ends   time.Time
	cancel context.CancelCauseFunc
	// turn is that of [width.begin].
	turn int
	// hung is set once it has lasted for Options.HungAfter.
	hung bool
	// abandoned is set once it is given up without having returned.
	abandoned bool
}

// over reports whether the call's context has ended.
func (f *flight) over(now time.Time) bool { return !now.Before(f.ends) }

// slow reports whether it counts among those that may take half of the
// inspectors: it hangs, or the one before it of the same pod did.
func (f *flight) slow() bool { return f.hung || f.change.Hung > 0 }

// inFlight knows the inspections under way, those that were abandoned among
// them, and publishes when the oldest began.
type inFlight struct {
	byPod map[pleg.PodUID]*flight
	// hung and abandoned count those; one that is abandoned no longer counts as
	// hung.
	hung, abandoned int
	oldest          atomic.Pointer[time.Time]
}

// len returns the number of inspections that take an inspector's place.
func (i *inFlight) len() int { return len(i.byPod) - i.abandoned }

func (i *inFlight) begin(f *flight) {
	i.byPod[f.change.UID] = f
	if len(i.byPod) == 1 {
		i.oldest.Store(&f.started)
	}
}

func (i *inFlight) end(uid pleg.PodUID) *flight {
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

// slow returns the number of inspections that count among those that may take
// half of the inspectors.
func (i *inFlight) slow(counts func(*flight) bool) int {
	n := 0
	for _, f := range i.byPod {
		if f.slow() && !f.abandoned && counts(f) {
			n++
		}
	}
	return n
}

// age returns for how long the oldest call has been running, in seconds; 0 if
// there is none. It is safe for concurrent use.
func (i *inFlight) age() float64 {
	oldest := i.oldest.Load()
	if oldest == nil {
		return 0
	}
	return time.Since(*oldest).Seconds()
}
