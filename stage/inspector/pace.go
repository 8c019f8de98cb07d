package inspector

import (
	"slices"
	"time"
)

const (
	// memory is the number of successful inspections that tell how long one may take.
	memory = 32
	// margin is how many times as long as the longest of them an inspection takes
	// before it is suspicious.
	margin = 3
	// leastPatience keeps short inspections from being suspicious for the scheduler's
	// sake.
	leastPatience = 20 * time.Millisecond
	// leastExtra is the number of extra places if the runtime serves one inspection at
	// once.
	leastExtra = 2
)

// pace is what is known of the runtime's speed.
type pace struct {
	hungAfter time.Duration
	// recent has the times of the last successful inspections, as a ring.
	recent []time.Duration
	next   int
	// answered is when an inspection last ended by itself, moved when one last ended by
	// itself or began.
	answered, moved time.Time
	// trials and cancelled count the inspections that were begun as a trial and that
	// were cancelled since answered.
	trials, cancelled int
	// cancelledAt is when one was last cancelled.
	cancelledAt time.Time
	// work is the time that successful inspections took since begun, added up; extra
	// is the number of extra places that may be used, 0 for all.
	begun time.Time
	work  time.Duration
	extra int
}

// answer notes that an inspection has ended by itself.
func (p *pace) answer(now time.Time) {
	p.answered, p.moved = now, now
	p.trials, p.cancelled = 0, 0
}

func (p *pace) succeed(took time.Duration) {
	if len(p.recent) < memory {
		p.recent = append(p.recent, took)
		return
	}
	p.recent[p.next] = took
	p.next = (p.next + 1) % memory
}

// served sets extra after an inspection has succeeded. By Little's law the work of a
// time is the number that the runtime served at once, if no more could begin (full).
// One that serves the last call first keeps all older ones waiting, and more of them
// with each extra place.
func (p *pace) served(took time.Duration, now time.Time, full bool) {
	if !full {
		p.work, p.extra = 0, 0
		return
	}
	if p.work == 0 {
		p.begun = now.Add(-took)
	}
	p.work += took
	if passed := now.Sub(p.begun); passed >= p.patience() && passed > 0 {
		p.extra = max(p.extra, leastExtra, int(3*p.work/(2*passed)))
		p.work = 0
	}
}

// suspicious returns the age from which an inspection is older than the recent ones
// explain; 0 if none has ever succeeded.
func (p *pace) suspicious() time.Duration {
	if len(p.recent) == 0 {
		return 0
	}
	return margin * slices.Max(p.recent)
}

// patience returns the age from which an overtaken inspection lends its place.
func (p *pace) patience() time.Duration {
	if len(p.recent) == 0 {
		return p.hungAfter
	}
	return min(max(p.suspicious(), leastPatience), p.hungAfter)
}

// nextTrial returns when one more inspection may begin although every place is taken:
// while nothing ends, the pauses are 1, 1/2, 1/3 and so on of the patience.
func (p *pace) nextTrial() time.Time {
	return p.moved.Add(p.patience() / time.Duration(p.trials+1))
}
