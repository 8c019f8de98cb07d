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
	d.announcements.unlisted.expire(now, nil)
	d.announcements.newPods = 0
	d.tombstones.containers.expire(now, nil)
	d.listings++
	d.pending = d.pending[:0]
	present := 0
	var count census
	for _, pod := range l.Pods {
		if pod = d.tombstones.without(pod, now); pod == nil || d.tombstones.grave(pod.UID).at.After(l.At) && d.records[pod.UID] == nil {
			continue
		}
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
	d.tombstones.listed(l.At)
	// What the listing covers is known now, before any inspection: a hung
	// inspection delays no GetNewerThan of another pod.
	d.cache.Observe(l.At, d.pending)
	covers := l.At.Sub(d.listedAt)
	d.listedAt, d.appliedAt = l.At, now
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
	to := observation{pod: pod, at: l.At, asOf: l.At}
	doubtful := rec.mayBeOlder(&to, rec.received) || d.bringsBack(rec, rec.uid, &to)
	switch {
	case doubtful:
		d.lister.RelistSoon()
	case rec.current.at.After(l.At): // a pod seen after the listing began need not be in it
		if doubtful = d.tells(rec, &stage.Observation{UID: rec.uid, At: l.At, Pod: pod}, now); !doubtful {
			rec.confirm(l.At)
		} else if now.Sub(d.appliedAt) < time.Millisecond {
			d.lister.RelistSoon() // the list of the pod alone has just failed: no hot loop
		} else {
			d.pods.RequestRelist(rec.uid)
		}
	default:
		if l.StreamUp {
			d.announcements.expect(events(rec.current.pod, pod, l.At), now, rec.current.pod, l.StreamBroke)
			if rec.current.news && same(rec.current.pod, pod) {
				d.announcements.confirmed = true
			}
		}
		if l.StreamUp && rec.old == nil && pod != nil && pod.Labels == nil && len(pod.Sandboxes) == 0 {
			d.lister.RelistSoon() // its sandbox, which has the labels, is listed a moment later
		}
		d.add(rec, to)
	}
	if doubtful {
		d.metrics.stale.Inc()
	}
	if doubtful || rec.state != stateSettled {
		d.pending = append(d.pending, rec.nameOf(pod))
	}
}
