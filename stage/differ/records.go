package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func (d *Differ) recordOf(uid pleg.PodUID) *record {
	rec := d.records[uid]
	if rec == nil {
		rec = &record{uid: uid, known: known{listed: later(d.listedAt, d.removals.lost), asOf: d.listedAt}}
		d.records[uid] = rec
		if _, ok := d.requested[uid]; ok {
			rec.reinspect = true
			delete(d.requested, uid)
		}
	}
	return rec
}

// add adds what is known after an observation to a record and schedules the change if there
// is one and none is in flight. A container that has run unseen makes two steps. single: a
// list of the pod alone shows it.
func (d *Differ) add(rec *record, o observation, single bool) {
	if had := rec.current.pod; !same(had, o.pod) {
		now := time.Now()
		if pod := d.announcements.starts(had, o.pod, now); pod != nil {
			ran := o
			ran.pod, ran.step = pod, true
			d.addStep(rec, ran)
			had = pod
		}
		d.dead.podChanged(rec.uid, o.pod, now)
		o.news = o.step
		if single {
			d.announcements.confirm(events(had, o.pod, o.at), now)
		}
	}
	d.addStep(rec, o)
}

func (d *Differ) addStep(rec *record, o observation) {
	o.news = o.news || o.step && rec.current.news
	if lost := rec.add(o); lost > 0 {
		d.metrics.skipped.Add(float64(lost))
	}
	if rec.superseded() {
		d.supersede(rec)
	}
	if rec.state.inFlight() {
		return
	}
	change, ok := rec.next()
	switch {
	case ok && rec.state == stateQuarantined && needsInspection(change):
		d.schedule.quarantine.hold(rec)
	case ok:
		d.send(rec, change)
	case o.pod == nil:
		d.forget(rec)
	}
}

// supersede has the inspection of a pod cancelled if it hangs, because the pod is gone.
// If it is only slow, the next listing asks again.
func (d *Differ) supersede(rec *record) {
	d.schedule.known.push(stage.Change{UID: rec.uid, Supersedes: true})
	d.lister.RelistSoon()
}

// send schedules a change.
func (d *Differ) send(rec *record, change stage.Change) {
	if rec.state == stateSettled {
		d.waiting.add(rec)
	}
	change.Initial = d.isInitial(rec)
	rec.send(change)
	d.schedule.add(change)
}

// forget drops the record of a pod that is gone, unless it has removed containers that a
// list may still show.
func (d *Differ) forget(rec *record) {
	if rec.known.removed == nil {
		delete(d.records, rec.uid)
	}
	rec.reinspect = false // a pod that appears is inspected anyway
}
