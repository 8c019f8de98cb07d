package differ

import "github.com/pleg-pipeline/pleg-pipeline/stage"

// The pure functions that make a change.
var (
	Events          = events
	Merge           = merge
	SkippedAttempts = skippedAttempts
)

// Apply applies a listing. It must not be called while Run runs.
func (d *Differ) Apply(l stage.Listing) { d.applyListing(l) }

// SettleQueued settles every queued change and returns their number, including
// marks.
func (d *Differ) SettleQueued() int {
	n := 0
	for _, q := range []*queue{&d.schedule.inspect, &d.schedule.known} {
		for ; q.len() > 0; n++ {
			_, c := q.offer(nil)
			q.pop()
			if c.UID != "" {
				d.settle(stage.Settled{UID: c.UID})
			}
		}
	}
	return n
}
