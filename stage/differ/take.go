package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// take takes an observation of one pod into the records.
func (d *Differ) take(o stage.Observation) {
	now := time.Now()
	if h := o.Hint; h != nil {
		d.countMissed(now)
		d.missed.heard(h, now)
		d.trust.heard = true
		if h.Removed {
			d.removed.add(h.Container, now)
		}
		if h.Pod == nil {
			return
		}
	}
	rec := d.records[o.UID]
	if !o.At.After(d.knownAt(rec, o.UID)) {
		d.metrics.stale.Inc()
		return
	}
	to := observation{pod: d.withoutRemoved(o.Pod, now), at: o.At}
	if o.Hint != nil {
		to = d.merge(rec, o, now)
	}
	if rec == nil && to.pod == nil {
		d.bury(o.UID, o.At)
		d.cache.Touch(o.UID, o.At)
		return
	}
	if rec == nil {
		if o.Hint != nil && !d.mayTell() {
			return
		}
		rec = d.record(o.UID)
	}
	d.observe(rec, to)
	d.queueLater()
	if rec.settled() {
		d.cache.Touch(o.UID, o.At)
	}
}

// mayTell reports whether events may tell of one more new pod before the next
// listing, which is due soon if not: what a runtime makes up is not kept without
// bound.
func (d *Differ) mayTell() bool {
	if d.told >= maxRecent {
		d.retry()
		return false
	}
	d.told++
	return true
}

// knownAt returns the time of the newest observation of a pod so far, of which
// there may be no record.
func (d *Differ) knownAt(rec *record, uid pleg.PodUID) time.Time {
	at := d.listedAt
	if rec != nil && rec.current.at.After(at) {
		at = rec.current.at
	}
	if gone := d.gone[uid]; gone.After(at) {
		at = gone
	}
	return at
}

func (d *Differ) merge(rec *record, o stage.Observation, now time.Time) observation {
	var have *pleg.Pod
	if rec != nil {
		have = rec.current.pod
	}
	to := observation{at: o.At, step: true}
	to.pod = merge(have, o.Hint, func(id pleg.ContainerID) bool {
		return d.removed.has(id, now) || d.unlistedAfter(id, o.At)
	})
	if tellsAll(o.Hint, to.pod) {
		to.status = o.Hint.Status
	}
	return to
}

// unlist notes which containers a list no longer has, and that its answer is in
// now. A list is dated when it was asked for, so that it may be newer than events
// with a later date.
func (d *Differ) unlist(had, has *pleg.Pod) {
	if same(had, has) {
		return
	}
	now := time.Now()
	for c := range containers(had) {
		if !hasContainer(has, c.ID) {
			d.unlisted.add(c.ID, now)
		}
	}
	for c := range containers(has) {
		d.unlisted.remove(c.ID)
	}
}

// tick is how much later than the answer to a list an event of the same moment may
// be dated: a runtime numbers those of one reading of its clock.
const tick = time.Microsecond

// unlistedAfter reports whether the answer to a list without the container came
// after t: what an event of that time says of it is over.
func (d *Differ) unlistedAfter(id pleg.ContainerID, t time.Time) bool {
	at, ok := d.unlisted.since[id]
	return ok && !t.After(at.Add(tick))
}

func (d *Differ) withoutRemoved(pod *pleg.Pod, now time.Time) *pleg.Pod {
	if len(d.removed.since) == 0 {
		return pod
	}
	return without(pod, func(id pleg.ContainerID) bool { return d.removed.has(id, now) })
}

// bury notes when a pod was found gone. The next listing clears that, and is due
// soon once there is much of it.
func (d *Differ) bury(uid pleg.PodUID, at time.Time) {
	d.gone[uid] = at
	if len(d.gone) >= maxRecent {
		d.retry()
	}
}
