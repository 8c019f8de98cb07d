package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// settle moves a record on and compares it at once with what was observed
// meanwhile. After an error the next listing does that.
func (d *Differ) settle(s stage.Settled, now time.Time) {
	rec := d.records[s.UID]
	at := rec.sent.at
	d.retries.ended(rec)
	if s.Err != nil {
		d.settleFailed(rec, s, now)
	} else {
		d.settleDelivered(rec, now)
	}
	d.queues.flush()
	d.unsettled.ended(rec, at)
	d.report(now)
}

func (d *Differ) settleDelivered(rec *record, now time.Time) {
	d.metrics.skippedContainers.Add(float64(skippedAttempts(rec.old, rec.sent.pod)))
	inspected := rec.state == stateInspecting
	rec.succeed()
	if rec.state != stateSettled {
		return // delivered uninspected; the next listing retries
	}
	if rec.hang != nil {
		d.retries.release(rec, inspected, now)
	}
	if rec.isNewer() {
		if change, ok := rec.next(); ok {
			d.unsettled.delivered(rec, stage.Earlier(rec.sent.asOf, change.At.Add(-1)))
			d.send(rec, change, now)
			return
		}
		d.cache.Touch(rec.uid, rec.current.asOf)
	}
	d.unsettled.delivered(rec, rec.current.asOf)
	if rec.current.pod == nil {
		d.forget(rec)
	}
}

// settleFailed arranges the retry of a failed inspection. If too many have failed, it delivers
// what is known.
func (d *Differ) settleFailed(rec *record, s stage.Settled, now time.Time) {
	rec.fail()
	switch {
	case s.Superseded || rec.current.pod == nil:
		d.startAgain(rec, now)
		return
	case s.Hung > 0 || s.Late:
		d.retries.add(rec, s, now)
		rec.state = stateQuarantined
	case rec.hang != nil:
		d.retries.failedPromptly(rec, now)
	default:
		d.lister.RelistSoon()
	}
	if change, ok := rec.next(); ok && !needsInspection(change) {
		d.send(rec, change, now) // what CRI events showed in full
		return
	}
	if d.deliverAfter > 0 && rec.failures >= d.deliverAfter {
		if change, ok := rec.uninspectedChange(); ok {
			d.send(rec, change, now)
		}
	}
}

// startAgain compares a pod at once although its inspection has failed: what was
// inspected is gone.
func (d *Differ) startAgain(rec *record, now time.Time) {
	if rec.hang != nil {
		d.retries.release(rec, false, now)
		rec.state = rec.failedState()
	}
	if change, ok := rec.next(); ok { // always: the last inspection failed
		d.send(rec, change, now)
	}
}
