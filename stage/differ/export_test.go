package differ

import "github.com/pleg-pipeline/pleg-pipeline/stage"

// The pure functions behind a Change.
var (
	Events          = events
	Merge           = merge
	SkippedAttempts = skippedAttempts
)

// Apply applies a listing without a goroutine. It must not be called beside Run.
func (d *Differ) Apply(l stage.Listing) { d.applyListing(l) }

// SettleAll has every queued change succeed and returns their number, marks
// included.
func (d *Differ) SettleAll() int {
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
