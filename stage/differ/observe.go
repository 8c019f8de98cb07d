package differ

import (
	"cmp"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// observation is what is known of a pod after one of its observations.
type observation struct {
	pod *pleg.Pod // nil if it was gone
	// at is when the list began or the event was made; what happened to the pod before asOf
	// is in pod.
	at, asOf time.Time
	// status came with a CRI event; nil if the runtime has to be asked.
	status *pleg.PodStatus
	// step is true if a CRI event made it: what it shows may be over by the next
	// observation, so it must not be skipped. news is true if a CRI event showed a change
	// that no list has confirmed yet.
	step, news bool
}

// applyObservation compares an observation of one pod with its record.
func (d *Differ) applyObservation(o stage.Observation, now time.Time) {
	d.announcements.count(now)
	rec := d.records[o.UID]
	if o.Hint != nil {
		d.noteHint(rec, o.Hint, now)
		if o.Hint.Pod == nil && (rec == nil || !o.Hint.Removed) {
			return
		}
	}
	if rec == nil {
		if !d.announcements.admitNewPod() {
			d.lister.RelistSoon()
			return
		}
		rec = d.recordOf(o.UID)
	}
	to, ok := d.join(rec, &o)
	if !ok {
		d.metrics.stale.Inc()
		if rec.state == stateSettled && to.pod == nil {
			d.forget(rec)
		}
		return
	}
	d.add(rec, to, o.Hint == nil, now)
	d.queues.flush()
	if rec.state == stateSettled {
		d.cache.Touch(o.UID, to.asOf)
		if rec.lag != nil {
			d.unsettled.delivered(rec, to.asOf)
			d.report(now)
		}
	}
}

// noteHint notes what an event announces, whether or not it is used.
func (d *Differ) noteHint(rec *record, h *pleg.Hint, now time.Time) {
	var had *pleg.Pod
	if rec != nil {
		had = rec.known.pod
	}
	d.announcements.noteHint(h, had, now)
}

// join joins an observation of one pod with what is known of it. It reports whether the
// observation was used. If something disagrees, the pod is listed again.
func (d *Differ) join(rec *record, o *stage.Observation) (observation, bool) {
	s := seen{began: o.At, made: o.At, answered: o.Answered}
	var v verdict
	var whole bool
	if o.Hint == nil {
		v = rec.known.listAlone(o.Pod, s, d.listAnswered, &d.removals)
		if v == disagreed {
			d.lister.RelistSoon() // not at once: events may keep coming
		}
	} else {
		s.began = cmp.Or(o.AsOf, o.At)
		v, whole = rec.known.event(o.Hint, s, &d.removals)
		if c := o.Hint.Status.Container(o.Hint.Container); c != nil && c.State == pleg.StateExited {
			d.cache.KeepRemoved(c)
		}
		if v == disagreed || v == agreed && rec.known.pod == nil && rec.current.pod != nil {
			d.pods.RequestRelist(o.UID)
		}
	}
	if d.removals.count >= maxRemoved {
		d.lister.RelistSoon()
	}
	to := observation{pod: rec.known.pod, at: o.At, asOf: rec.known.asOf, step: o.Hint != nil}
	if whole && o.Hint.Pod != nil && coversPod(o.Hint, to.pod) {
		to.status = o.Hint.Status
	}
	if v == disagreed {
		d.metrics.stale.Inc()
	}
	return to, v != outdated
}
