package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// applyListing compares a listing of all pods with the records.
func (d *Differ) applyListing(l stage.Listing) {
	d.takeRequests()
	d.markBehind()
	now := time.Now()
	d.announcements.count(now)
	d.announcements.newPods = 0
	d.listings++
	d.pending = d.pending[:0]
	present := 0
	var count census
	for _, pod := range l.Pods {
		rec := d.recordOf(pod.UID)
		if rec.listing == d.listings {
			d.metrics.duplicates.Inc()
			d.log.Warn("skipped pod listed twice", "podUID", pod.UID)
			continue
		}
		rec.listing = d.listings
		present++
		count.add(pod)
		d.compareListed(rec, pod, &l, now)
	}
	if present < len(d.records) {
		for _, rec := range d.records {
			if rec.listing != d.listings {
				d.compareListed(rec, nil, &l, now)
			}
		}
	}
	d.schedule.flush()
	d.metrics.publish(count)
	clear(d.requested)
	// What the listing covers is known now, before any inspection: a hung
	// inspection delays no GetNewerThan of another pod.
	d.cache.Observe(l.At, d.pending)
	covers := l.At.Sub(d.listedAt)
	d.listedAt, d.listAnswered = l.At, l.Answered
	d.coverage.listed(l.At, d.pending)
	d.dead.listingApplied(now, l.StreamUp && !l.StreamBroke)
	if d.announcements.judge(l, covers) {
		d.lister.RelistSoon() // to see whether the events come
	}
	d.markCurrent()
	d.awaitChanges(l)
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
		d.add(rec, observation{pod: rec.known.pod, at: l.At, asOf: rec.known.asOf}, false)
	}
	if rec.state != stateSettled || rec.known.asOf.Before(l.At) {
		d.pending = append(d.pending, rec.nameOf(pod))
	}
}
