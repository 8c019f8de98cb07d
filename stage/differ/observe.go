package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// observation is what the runtime had of the pod at one time.
type observation struct {
	pod *pleg.Pod // nil if it was gone
	// at orders the observations. What happened to the pod before asOf is in this one;
	// for a list the two are the same.
	at, asOf time.Time
	// status came with a CRI event; nil if the runtime has to be asked.
	status *pleg.PodStatus
	// step is true if a CRI event made it: what it shows may be over by the next
	// observation, so it must not be skipped. single is true if a single-pod list
	// made it, and not a listing. news is true if a CRI event showed a change that no
	// list has confirmed yet.
	step, single, news bool
}

// applyObservation compares an observation of one pod with its record.
func (d *Differ) applyObservation(o stage.Observation) {
	now := time.Now()
	rec := d.records[o.UID]
	if h := o.Hint; h != nil {
		var had *pleg.Pod
		if rec != nil {
			had = rec.current.pod
		}
		d.announcements.hear(h, had, now)
		if h.Removed {
			d.tombstones.containers.add(h.Container, now)
			d.dead.announced = d.dead.announced || h.Container == h.Sandbox
		}
		if h.Pod == nil {
			return
		}
	}
	if !o.At.After(d.newestOf(rec, o.UID)) {
		d.applyOlder(rec, &o, now)
		return
	}
	to := observation{at: o.At, asOf: o.At, single: true}
	if o.Hint == nil {
		to.pod = d.tombstones.without(o.Pod, now)
	} else {
		to = d.mergeHint(rec, o, now)
	}
	if o.Hint == nil && (rec != nil && rec.mayBeOlder(&to, d.appliedAt) || d.bringsBack(rec, o.UID, &to)) {
		d.metrics.stale.Inc()
		d.lister.RelistSoon()
		return
	}
	if rec == nil {
		if to.pod == nil {
			d.bury(o.UID, to)
			d.cache.Touch(o.UID, to.asOf)
			return
		}
		if o.Hint != nil && !d.announcements.admitNewPod() {
			d.lister.RelistSoon()
			return
		}
		rec = d.recordOf(o.UID)
	}
	rec.received = now
	d.add(rec, to)
	d.schedule.flush()
	if rec.state == stateSettled {
		d.cache.Touch(o.UID, to.asOf)
		if _, behind := d.coverage.behind[o.UID]; behind && o.Hint == nil {
			d.coverage.settled(o.UID)
			d.markCurrent()
		}
	}
}

// bringsBack reports whether a list has a container that a list of the other kind, whose
// answer came after this one began, no longer had: this one may have been answered earlier.
func (d *Differ) bringsBack(rec *record, uid pleg.PodUID, to *observation) bool {
	have := observation{single: !d.tombstones.grave(uid).at.IsZero()}
	if rec != nil && !rec.current.at.IsZero() {
		have = rec.current
	}
	for c := range containers(to.pod) {
		if have.single != to.single && !hasContainer(have.pod, c.ID) && d.announcements.unlistedAfter(c.ID, to.at) {
			return true
		}
	}
	return false
}

// applyOlder compares an observation with a newer one, which is not replaced.
func (d *Differ) applyOlder(rec *record, o *stage.Observation, now time.Time) {
	d.metrics.stale.Inc()
	switch {
	case d.tells(rec, o, now):
		if o.Hint == nil {
			d.lister.RelistSoon() // not at once: events may keep coming
			return
		}
		d.pods.RequestRelist(o.UID)
	case rec != nil && o.Hint == nil && rec.confirm(o.At) && rec.state == stateSettled:
		d.cache.Touch(o.UID, o.At)
	}
}

// newestOf returns the time of the newest observation of a pod so far, of which
// there may be no record.
func (d *Differ) newestOf(rec *record, uid pleg.PodUID) time.Time {
	at := d.listedAt
	if rec != nil && rec.current.at.After(at) {
		at = rec.current.at
	}
	if rec != nil {
		return at
	}
	if gone := d.tombstones.grave(uid).at; gone.After(at) {
		at = gone
	}
	return at
}

// currentAsOf returns the time up to which everything that happened to a pod is known.
func (d *Differ) currentAsOf(rec *record, uid pleg.PodUID) time.Time {
	if rec != nil {
		return rec.current.asOf
	}
	asOf := d.listedAt
	if gone := d.tombstones.grave(uid).asOf; gone.After(asOf) {
		asOf = gone
	}
	return asOf
}

// mergeHint returns what is known of a pod after a CRI event. If the event takes
// something back, lacks a container, or says that the pod is gone, the pod is listed as
// well.
func (d *Differ) mergeHint(rec *record, o stage.Observation, now time.Time) observation {
	var have *pleg.Pod
	if rec != nil {
		have = rec.current.pod
	}
	to := observation{at: o.At, asOf: d.currentAsOf(rec, o.UID), step: true}
	to.pod = merge(have, o.Hint, func(id pleg.ContainerID) bool {
		return d.tombstones.containers.has(id, now) || d.announcements.unlistedAfter(id, o.At)
	})
	if coversPod(o.Hint, to.pod) {
		to.status = o.Hint.Status
	}
	contradicts := takesBack(have, o.Hint.Pod)
	if to.pod == nil || contradicts || lacks(o.Hint.Pod, to.pod) {
		d.pods.RequestRelist(o.UID)
	}
	if !contradicts || !same(have, to.pod) {
		to.asOf = hintAsOf(&o, to.pod, to.asOf)
	}
	return to
}

// hintAsOf returns the time up to which everything that happened to a pod is known after
// a CRI event: that of the event if it shows the whole pod. Otherwise it is what it was;
// the nanosecond makes the event newer than that, and no list takes less.
func hintAsOf(o *stage.Observation, pod *pleg.Pod, before time.Time) time.Time {
	asOf := o.AsOf
	if asOf.IsZero() {
		asOf = o.At
	}
	if least := before.Add(1); !showsPod(o.Hint.Pod, pod) || asOf.Before(least) {
		return least
	}
	return asOf
}

// takesBack reports whether an event shows a container before the state that is known.
func takesBack(have, event *pleg.Pod) bool {
	for c := range containers(event) {
		if known := containerOf(have, c.ID); known != nil && behind(c, known) {
			return true
		}
	}
	return false
}

// lacks reports whether an event shows a sandbox without a container of it that is known,
// although nothing announced that it is gone.
func lacks(event, pod *pleg.Pod) bool {
	for c := range containers(pod) {
		if hasContainer(event, c.SandboxID) && !hasContainer(event, c.ID) {
			return true
		}
	}
	return false
}

// showsPod reports whether an event shows every container and sandbox that is known of a
// pod.
func showsPod(event, pod *pleg.Pod) bool {
	for c := range containers(pod) {
		if !hasContainer(event, c.ID) {
			return false
		}
	}
	return true
}

// tells reports whether an observation that is not used, because a newer one came
// before, shows something that the record lacks. That cannot be if the newer one was a
// list of the whole pod, unless an event says that a container is further. But a CRI
// event may show only a part of the pod.
func (d *Differ) tells(rec *record, o *stage.Observation, now time.Time) bool {
	var have *pleg.Pod
	partial := true // gone, according to an event
	if rec != nil {
		have, partial = rec.current.pod, rec.current.step
	} else if !d.tombstones.grave(o.UID).at.After(d.listedAt) {
		return false
	}
	pod := o.Pod
	if o.Hint != nil {
		pod = o.Hint.Pod
		if o.Hint.Removed && hasContainer(have, o.Hint.Container) {
			return true
		}
	}
	for c := range containers(pod) {
		switch known := containerOf(have, c.ID); {
		case known != nil && behind(known, c):
			return o.Hint != nil || partial
		case known == nil && partial && !d.tombstones.containers.has(c.ID, now) && !d.announcements.unlisted.has(c.ID, now):
			return true
		}
	}
	if o.Hint != nil || !partial {
		return false
	}
	for c := range containers(have) {
		if !hasContainer(pod, c.ID) && !c.CreatedAt.After(o.At) {
			return true
		}
	}
	return false
}
