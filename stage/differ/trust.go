package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// cleanRelists is how many relists in a row must show nothing unannounced
	// before a doubted stream of events is relied on again: a minute of the
	// default period. It takes twice as many each time that it is doubted anew,
	// up to maxCleanRelists: a stream that now and then loses an event would
	// otherwise be relied on most of the time.
	cleanRelists    = 60
	maxCleanRelists = 3600
)

// trust is whether the stream of events may stand in for lists. That it is open
// says little: one on which nothing comes any more is only found out by a list.
type trust struct {
	doubted bool
	// clean counts the relists since the last miss, of which it takes need.
	clean, need int
	// heard is whether an event came since: silence proves nothing.
	heard bool
}

// miss notes that the stream has missed something, and reports whether it is
// doubted only now.
func (t *trust) miss() (now bool) {
	t.clean, t.heard = 0, false
	if t.doubted {
		return false
	}
	t.doubted = true
	t.need = min(max(cleanRelists, 2*t.need), maxCleanRelists)
	return true
}

// relisted notes a relist without a miss, and reports whether the stream has
// thereby earned to be relied on again.
func (t *trust) relisted() (restored bool) {
	if !t.doubted {
		return false
	}
	t.clean++
	t.doubted = t.clean < t.need || !t.heard
	return !t.doubted
}

// countMissed counts what events have failed to announce by now. A stream that
// is up and has failed is doubted.
func (d *Differ) countMissed(now time.Time) {
	missed := d.missed.count(now)
	if missed == 0 || !d.trust.miss() {
		return
	}
	d.log.Warn("the stream of container events is up but misses changes: relisting as if there were none until it does not",
		"missed", missed, "relists", d.trust.need)
	d.metrics.doubted.Set(1)
	d.doubt(true)
}

// weigh holds a listing for or against the stream. What it shows unannounced may
// be announced in a moment: the next listings then follow soon, to tell.
func (d *Differ) weigh(l stage.Listing) {
	switch {
	case d.missed.waits():
		d.retry()
	case l.Announced && !l.Broken && d.trust.relisted():
		d.log.Info("the stream of container events announces all changes again", "relists", d.trust.clean)
		d.metrics.doubted.Set(0)
		d.doubt(false)
	}
}
