package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func (d *Differ) recordOf(uid pleg.PodUID) *record {
	rec := d.records[uid]
	if rec == nil {
		newest := d.unsettled.newest
		rec = &record{uid: uid, known: known{listed: later(newest, d.removals.lost), asOf: newest}}
		d.records[uid] = rec
	}
	return rec
}

// add adds what is known after an observation to a record and schedules the change if there
// is one and none is in flight. A container that has run unseen makes two steps. single: a
// list of the pod alone shows it.
func (d *Differ) add(rec *record, o observation, single bool, now time.Time) {
	if had := rec.current.pod; !same(had, o.pod) {
		if pod := d.announcements.starts(had, o.pod); pod != nil {
			ran := o
			ran.pod, ran.step = pod, true
			d.addStep(rec, ran, now)
			had = pod
		}
		d.dead.podChanged(rec.uid, o.pod, now)
		o.news = o.step
		if single {
			d.announcements.confirm(events(had, o.pod, o.at))
		}
	}
	d.addStep(rec, o, now)
}

func (d *Differ) addStep(rec *record, o observation, now time.Time) {
	o.news = o.news || o.step && rec.current.news
	if lost := rec.add(o); lost > 0 {
		d.metrics.skippedSteps.Add(float64(lost))
	}
	if rec.superseded() {
		d.queues.cancel.push(stage.Cancel{UID: rec.uid})
		d.lister.RelistSoon() // if its inspection is only slow, the next listing asks again
	}
	if rec.state.inFlight() {
		return
	}
	change, ok := rec.next()
	switch {
	case ok && rec.state == stateQuarantined && needsInspection(change):
		d.retries.hold(rec, now)
	case ok:
		d.send(rec, change, now)
	case o.pod == nil:
		d.forget(rec)
	}
}

// send queues a change.
func (d *Differ) send(rec *record, change stage.Change, now time.Time) {
	if rec.state == stateSettled {
		d.unsettled.changed(rec, now)
	}
	if needsInspection(change) {
		delete(d.requested, rec.uid) // served, as in the kubelet
	}
	rec.send(change)
	d.queues.add(change)
}

// forget drops the record of a pod that is gone, unless a list that began earlier may still
// show the pod or its containers.
func (d *Differ) forget(rec *record) {
	if rec.known.removed == nil && rec.known.answered.Before(rec.known.listed) {
		d.unsettled.cover(rec)
		delete(d.records, rec.uid)
	}
	rec.reinspect = false // a pod that appears is inspected anyway
}
