package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Apply applies a listing that was answered at once. It must not be called while Run runs.
func (d *Differ) Apply(l stage.Listing) {
	l.Answered = l.At
	d.applyListing(l, time.Now())
}

// SettleQueued settles every queued change and returns their number, including
// marks.
func (d *Differ) SettleQueued() int {
	n := 0
	for _, q := range []*queue[stage.Change]{&d.queues.inspect, &d.queues.known} {
		for ; q.len() > 0; n++ {
			_, c := q.offer(nil)
			q.pop()
			d.settle(stage.Settled{UID: c.UID}, time.Now())
		}
	}
	for ; d.queues.marks.len() > 0; n++ {
		d.queues.marks.pop()
	}
	return n
}
