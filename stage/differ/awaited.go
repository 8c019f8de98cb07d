package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// awaited is a listing that callers wait for, until the changes of all its pods have
// ended, also those that failed.
type awaited struct {
	at      time.Time
	changes map[pleg.PodUID]struct{}
	callers []chan<- error
}

// awaitChanges waits for the changes in flight, if callers wait for the listing.
func (d *Differ) awaitChanges(l stage.Listing) {
	if len(l.Relisted) == 0 {
		return
	}
	w := awaited{at: l.At, changes: make(map[pleg.PodUID]struct{}), callers: l.Relisted}
	for uid, rec := range d.records {
		if rec.state.inFlight() {
			w.changes[uid] = struct{}{}
		}
	}
	d.awaited = append(d.awaited, w)
	d.reportAwaited()
}

// changeEnded notes the end of a change to the pod as observed at a time. If another
// change follows, a listing after that time still waits for the pod.
func (d *Differ) changeEnded(rec *record, at time.Time) {
	if len(d.awaited) == 0 {
		return
	}
	for _, w := range d.awaited {
		if !rec.state.inFlight() || !at.Before(w.at) {
			delete(w.changes, rec.uid)
		}
	}
	d.reportAwaited()
}

// reportAwaited sends the mark of each listing without a change in flight. The mark
// follows the events of those changes.
func (d *Differ) reportAwaited() {
	d.awaited = slices.DeleteFunc(d.awaited, func(w awaited) bool {
		if len(w.changes) > 0 {
			return false
		}
		d.schedule.known.push(stage.Change{Relisted: w.callers})
		return true
	})
}
