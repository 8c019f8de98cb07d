package differ

import "github.com/pleg-pipeline/pleg-pipeline/stage"

// The pure functions behind a Change.
var (
	Events          = events
	Merge           = merge
	SkippedAttempts = skippedAttempts
)

// Apply takes a listing without a goroutine. It is not to be called beside Run.
func (d *Differ) Apply(l stage.Listing) { d.apply(l) }

// SettleAll takes everything queued and has every change succeed, and returns
// how much there was, marks included.
func (d *Differ) SettleAll() int {
	n := 0
	for _, q := range []*queue{&d.inspect, &d.known} {
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
