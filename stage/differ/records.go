package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func (d *Differ) recordOf(uid pleg.PodUID) *record {
	rec := d.records[uid]
	if rec == nil {
		rec = &record{uid: uid}
		d.records[uid] = rec
		if _, ok := d.requested[uid]; ok {
			rec.reinspect = true
			delete(d.requested, uid)
		}
	}
	return rec
}

// add adds a newer observation to a record and schedules the change if there is
// one and none is in flight. A container that has run unseen makes two steps.
func (d *Differ) add(rec *record, o observation) {
	if had := rec.current.pod; !same(had, o.pod) {
		now := time.Now()
		if pod := d.announcements.starts(had, o.pod, now); pod != nil {
			ran := o
			ran.pod, ran.step, ran.single = pod, true, false
			d.addStep(rec, ran)
			had = pod
		}
		d.podChanged(rec.uid, had, &o, now)
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

// podChanged takes an observation that differs from the one before.
func (d *Differ) podChanged(uid pleg.PodUID, had *pleg.Pod, o *observation, now time.Time) {
	d.dead.podChanged(uid, o.pod, now)
	o.news = o.step
	if !o.step {
		d.announcements.compareLists(had, o.pod, now)
	}
	if o.single {
		d.announcements.confirm(events(had, o.pod, o.at), now)
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

// forget drops the record of a pod that is gone.
func (d *Differ) forget(rec *record) {
	delete(d.records, rec.uid)
	if rec.current.at.After(d.listedAt) {
		d.bury(rec.uid, rec.current)
	}
}

// bury remembers that a pod is gone until the next listing, which comes soon if
// there are too many.
func (d *Differ) bury(uid pleg.PodUID, gone observation) {
	if d.tombstones.buryPod(uid, grave{gone.at, gone.asOf}) {
		d.lister.RelistSoon()
	}
}
