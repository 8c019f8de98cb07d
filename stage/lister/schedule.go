package lister

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// maxRequestPause bounds the time between two lists on request. RelistPeriod may be
	// much longer, and then a request should not wait for so long; one list a second is
	// what the kubelet does all the time.
	maxRequestPause = time.Second
	// oversleptAfter is the lateness of a list that only a stopped or starved process
	// explains; catchUp is the time its waiting events then get.
	oversleptAfter = 20 * time.Millisecond
	catchUp        = 2 * time.Second
)

// schedule says when the next list begins. It has no clock; the loop owns it.
type schedule struct {
	// period is the relist period without events, pause the time between two lists on
	// request.
	period, pause time.Duration
	// listing is what was known of the stream when the last list began, ended is when it
	// ended.
	listing evidence
	ended   time.Time
	// requested is set by requests of a list at once, soon by requests of a list until then.
	// served is when a list for the former last ended: many hints must not cause lists without
	// a pause.
	requested    bool
	soon, served time.Time
	// due is when the next list was to begin when that was last asked, at is when it will
	// really: later if that had passed already.
	due, at time.Time
	// held is until when events go before an overdue list.
	held time.Time
}

// requestSoon takes a request of a list within the relist period.
func (s *schedule) requestSoon(now time.Time) {
	if s.soon.IsZero() { // requests may keep coming
		s.soon = now.Add(s.period)
	}
}

// next reports whether a list begins now, and if not, when to ask again. period is the
// present relist period.
func (s *schedule) next(now time.Time, stream evidence, period time.Duration) (begin bool, again time.Time) {
	if !stream.sameStream(s.listing) {
		return true, now // for what came before the stream, or was lost with it
	}
	due := stage.Earlier(stage.Earlier(s.ended.Add(period), s.soon), stream.nextProof())
	if s.requested {
		due = stage.Earlier(due, s.served.Add(s.pause))
	}
	if !due.Equal(s.due) {
		s.due, s.at = due, due
		if due.Before(now) { // the period became shorter
			s.at = now
		}
	}
	switch {
	case s.at.After(now):
		return false, s.at
	case !stream.up || now.Sub(s.at) <= oversleptAfter:
		return true, now
	case s.held.IsZero():
		// This process did not run when the list became due, so that events of that time
		// still wait. They go first: the list shows only how things are now, and what came
		// and went before would never be reported.
		s.held = now.Add(catchUp)
	}
	return !s.held.After(now), s.held
}

// listEnded notes the end of a list that served a request if that waited.
func (s *schedule) listEnded(now time.Time, listing evidence) {
	s.ended, s.listing = now, listing
	if s.requested {
		s.served = now
	}
	s.requested, s.soon, s.held = false, time.Time{}, time.Time{}
}
