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
