package differ

import (
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// settle moves a record on and compares it at once with what was observed
// meanwhile. After an error the next listing does that.
func (d *Differ) settle(s stage.Settled) {
	rec := d.records[s.UID]
	d.schedule.quarantine.ended(rec)
	defer d.changeEnded(rec, rec.sent.at)
	if s.Err != nil {
		d.coverage.tried(rec.uid)
		d.settleFailed(rec, s)
		d.markCurrent()
		return
	}
	d.metrics.skippedAttempts.Add(float64(skippedAttempts(rec.old, rec.sent.pod)))
	inspected := rec.state == stateInspecting
	rec.succeed()
	if rec.state != stateSettled {
		return // delivered uninspected; the next listing retries
	}
	d.waiting.remove(rec)
	if rec.hang != nil {
		d.schedule.quarantine.release(rec, inspected)
	}
	if rec.isNewer() {
		if change, ok := rec.next(); ok {
			if change.At.After(d.listedAt) {
				d.coverage.settled(rec.uid)
			}
			d.send(rec, change)
			d.schedule.flush()
			d.markCurrent()
			return
		}
		d.cache.Touch(rec.uid, rec.current.asOf)
	}
	d.coverage.reached(rec.uid, rec.current.asOf)
	if rec.current.pod == nil {
		d.forget(rec)
	}
	d.markCurrent()
}

// settleFailed has a failed inspection retried, and delivers what is known if too
// many have failed.
func (d *Differ) settleFailed(rec *record, s stage.Settled) {
	rec.fail()
	q := &d.schedule.quarantine
	switch {
	case s.Superseded || rec.current.pod == nil:
		d.startAgain(rec)
		return
	case s.Hung > 0 || s.Late:
		q.add(rec, s)
		rec.state = stateQuarantined
	case rec.hang != nil:
		q.failedPromptly(rec)
	default:
		d.lister.RelistSoon()
	}
	if change, ok := rec.next(); ok && !needsInspection(change) {
		d.send(rec, change) // what CRI events showed in full
		return
	}
	if d.deliverAfter > 0 && rec.failures >= d.deliverAfter {
		if change, ok := rec.uninspectedChange(); ok {
			d.send(rec, change)
		}
	}
}

// startAgain compares a pod at once although its inspection has failed: what was
// inspected is gone.
func (d *Differ) startAgain(rec *record) {
	if rec.hang != nil {
		d.schedule.quarantine.release(rec, false)
		rec.state = rec.failedState()
	}
	if change, ok := rec.next(); ok { // always: the last inspection failed
		d.send(rec, change)
		d.schedule.flush()
	}
}
