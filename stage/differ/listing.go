package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// applyListing compares a listing of all pods with the records.
func (d *Differ) applyListing(l stage.Listing, now time.Time) {
	d.takeRequests(now)
	if !d.unsettled.marked {
		d.mark(now) // pods that are still not inspected take longer than a period
	}
	d.announcements.count(now)
	d.announcements.newPods = 0
	d.listings++
	var count census
	for _, pod := range l.Pods {
		rec := d.recordOf(pod.UID)
		if rec.listing == d.listings {
			d.metrics.duplicates.Inc()
			d.log.Warn("skipped pod listed twice", "podUID", pod.UID)
			continue
		}
		rec.listing = d.listings
		count.add(pod)
		d.compareListed(rec, pod, &l, now)
	}
	for _, rec := range d.records {
		if rec.listing != d.listings {
			d.compareListed(rec, nil, &l, now)
		}
	}
	d.queues.flush()
	d.metrics.publish(count)
	clear(d.requested)
	d.listAnswered = l.Answered
	// What the listing covers is known now, before any inspection: a hung
	// inspection delays no GetNewerThan of another pod.
	d.pending = d.unsettled.addList(l.At, l.Relisted, d.pending[:0])
	d.cache.Observe(l.At, d.pending)
	d.dead.listingApplied(now, l.StreamUp && !l.StreamBroke)
	if d.announcements.judge(l) {
		d.lister.RelistSoon() // to see whether the events come
	}
	d.report(now)
}

// compareListed compares what a listing has of one pod, nil for nothing.
func (d *Differ) compareListed(rec *record, pod *pleg.Pod, l *stage.Listing, now time.Time) {
	if _, ok := d.requested[rec.uid]; ok {
		rec.reinspect = true
	}
	had := rec.known.pod
	v := rec.known.listAll(pod, seen{l.At, l.At, l.Answered}, &d.removals)
	if v == disagreed {
		d.lister.RelistSoon()
	}
	if v != agreed {
		d.metrics.stale.Inc()
	}
	if v != outdated {
		if l.StreamUp {
			d.announcements.expect(events(had, rec.known.pod, l.At), now, had, l.StreamBroke)
			if rec.current.news && same(had, rec.known.pod) {
				d.announcements.confirmed = true
			}
		}
		if l.StreamUp && rec.old == nil && pod != nil && pod.Labels == nil && len(pod.Sandboxes) == 0 {
			d.lister.RelistSoon() // its sandbox, which has the labels, is listed a moment later
		}
		d.add(rec, observation{pod: rec.known.pod, at: l.At, asOf: rec.known.asOf}, false, now)
	}
	switch {
	case rec.state != stateSettled:
	case rec.known.asOf.Before(l.At):
		d.unsettled.add(rec)
	default:
		d.unsettled.cover(rec)
	}
}

// mark tells the subscribers how far they are current, and which pods the newest listing
// does not cover.
func (d *Differ) mark(now time.Time) {
	u := &d.unsettled
	switch {
	case u.newest.IsZero():
	case u.hasStarted(now):
		u.marked = true
		d.queues.marks.push(stage.Mark{Current: u.newest, Behind: u.behind()})
	case d.queues.inspect.len() == 0:
		d.lister.RelistSoon() // to see whether the inspections that are left hang
	}
}

// report sends the marks that are due: for the newest listing unless pods that just changed
// are about to be inspected, and for the callers that wait for a listing.
func (d *Differ) report(now time.Time) {
	u := &d.unsettled
	if u.fresh == 0 && (!u.marked || u.count.Load() == 0) {
		d.mark(now)
	}
	if callers := u.reached(); len(callers) > 0 {
		d.queues.marks.push(stage.Mark{Relisted: callers})
	}
}
