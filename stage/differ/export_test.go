package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// The pure functions that make a change.
var (
	Events          = events
	SkippedAttempts = skippedAttempts
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

// Merge returns what is known of a pod after an event, if some containers are gone.
func Merge(have *pleg.Pod, h *pleg.Hint, removed func(pleg.ContainerID) bool) *pleg.Pod {
	k, n := known{pod: have}, removals{}
	for _, pod := range []*pleg.Pod{have, h.Pod} {
		for c := range containers(pod) {
			if removed(c.ID) {
				k.remove(c.ID, removal{byEvent: true}, &n)
			}
		}
	}
	k.event(h, seen{}, &n)
	return k.pod
}
