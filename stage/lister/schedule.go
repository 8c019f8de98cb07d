package lister

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// maxRequestPause bounds the time between two lists on request. RelistPeriod may be much longer,
// and a request should not wait for so long. The kubelet always makes one list a second.
const maxRequestPause = time.Second

// schedule says when the next list begins. It uses no clock; the loop owns it.
type schedule struct {
	// period is the relist period without events, pause the time between two lists on
	// request.
	period, pause time.Duration
	// ended is the time at which the last list ended, answered when the last list or probe ended.
	ended, answered time.Time
	// atOnce is set by a change of the event stream, requested by requests for a list at once, soon
	// by requests for a list within the period. served is the time at which a list for a request
	// last ended: many hints must not cause lists without a pause.
	atOnce, requested bool
	soon, served      time.Time
}

// requestSoon takes a request for a list that is due within the relist period.
func (s *schedule) requestSoon(now time.Time) {
	if s.soon.IsZero() { // requests may keep coming
		s.soon = now.Add(s.period)
	}
}

// next reports whether a list begins now, and if not, when to ask again. period is the
// present relist period.
func (s *schedule) next(now time.Time, period time.Duration) (begin bool, again time.Time) {
	due := stage.Earlier(s.ended.Add(period), s.soon)
	if s.requested {
		due = s.served.Add(s.pause) // never later than the others: each is a period after a list
	}
	return s.atOnce || !due.After(now), due
}

// probePeriod is the time without a list after which the runtime is asked whether it answers.
const probePeriod = 2 * time.Second

// probe returns the time at which the next probe is due.
func (s *schedule) probe() time.Time { return s.answered.Add(probePeriod) }

// listEnded notes the end of a list, and whether it served a request.
func (s *schedule) listEnded(now time.Time) {
	s.ended, s.answered = now, now
	if s.requested {
		s.served = now
	}
	s.atOnce, s.requested, s.soon = false, false, time.Time{}
}
