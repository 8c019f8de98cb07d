package differ

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// quarantine holds the pods whose last inspection hung. Each is inspected again
// at the next relist, as after any failure, then after a wait that doubles from
// the relist period on, and only where no other pod waits for an inspector.
type quarantine struct {
	first, most time.Duration
	// pods are in the order in which their waits end.
	pods []*record
	// due fires when a wait ends.
	due *time.Timer
	// published is what others may know of it.
	published atomic.Pointer[[]pleg.Quarantined]
}

// hang is what is known of a pod in quarantine.
type hang struct {
	since time.Time
	// times is the number of inspections in a row that hung.
	times int
	// due is when the wait ends. A change of the pod ends it early once: hasty
	// is set from then on.
	due   time.Time
	hasty bool
	// seen is set once the pod was observed after the failure: as after any
	// other, what it is then is inspected.
	seen bool
	// requested is set if a request came while the pod was being tried: should
	// that try hang too, the next one need not wait.
	requested bool
	err       error
}

// start returns the channel on which the loop hears that a wait has ended.
func (q *quarantine) start() <-chan time.Time {
	q.due = time.NewTimer(0)
	q.due.Stop()
	return q.due.C
}

// after returns the wait after so many hung inspections in a row.
func (q *quarantine) after(times int) time.Duration {
	if times == 1 {
		return 0
	}
	wait := q.first
	for range times - 2 {
		if wait >= q.most {
			break
		}
		wait *= 2
	}
	return min(wait, q.most)
}

// Quarantined returns the pods in quarantine, in the order in which their waits
// end; it is not to be written. It is safe for concurrent use.
func (d *Differ) Quarantined() []pleg.Quarantined {
	if pods := d.quarantine.published.Load(); pods != nil {
		return *pods
	}
	return nil
}

// confine puts a pod into quarantine, or has it wait there for longer.
func (d *Differ) confine(rec *record, s stage.Settled) {
	q := &d.quarantine
	entered := rec.hang == nil
	if entered {
		rec.hang = &hang{since: time.Now()}
		q.pods = append(q.pods, rec)
	}
	rec.hang.times++
	rec.hang.seen = false
	rec.hang.err = s.Err
	wait := q.after(rec.hang.times)
	if rec.hang.requested {
		wait = 0
	}
	if entered {
		pod := rec.named(nil)
		d.log.Warn("pod quarantined, as its inspection hung; it is tried again more and more seldom",
			"podUID", rec.uid, "pod", pod.Namespace+"/"+pod.Name, "age", s.Hung, "nextTry", max(wait, q.first), "err", s.Err)
	}
	d.wait(rec, wait)
}

// wait has a pod in quarantine wait for so long from now on.
func (d *Differ) wait(rec *record, wait time.Duration) {
	rec.hang.due = time.Now().Add(wait)
	slices.SortStableFunc(d.quarantine.pods, func(a, b *record) int { return a.hang.due.Compare(b.hang.due) })
	d.retryDue()
	d.publish()
}

// retryDue asks for a listing if one is needed to try a pod again, and has itself
// called when the next wait ends.
func (d *Differ) retryDue() {
	now := time.Now()
	for _, rec := range d.quarantine.pods {
		if wait := rec.hang.due.Sub(now); wait > 0 {
			d.quarantine.due.Reset(wait)
			return
		}
		if !rec.busy && !rec.hang.seen {
			d.retry()
		}
	}
}

// hold keeps a pod in quarantine for the end of its wait, which is now if it has
// changed for the first time.
func (d *Differ) hold(rec *record) {
	rec.hang.seen = true
	if !rec.hang.hasty && !same(rec.sent.pod, rec.current.pod) {
		rec.hang.hasty = true
		d.wait(rec, 0)
	}
}

// offerRetry returns the channel and the change of a select case that has a pod
// in quarantine inspected. The case is off while no wait has ended, or another
// pod waits for an inspector. The pod's record is free for newer observations
// until it is taken.
func (d *Differ) offerRetry(to chan<- stage.Change) (chan<- stage.Change, stage.Change) {
	if len(d.quarantine.pods) == 0 || d.inspect.len() > 0 {
		return nil, stage.Change{}
	}
	now := time.Now()
	for _, rec := range d.quarantine.pods {
		if rec.hang.due.After(now) {
			break
		}
		if rec.busy || !rec.hang.seen {
			continue
		}
		if change, ok := rec.next(); ok && asks(change) {
			change.Hung = rec.hang.times
			return to, change
		}
	}
	return nil, stage.Change{}
}

// release lets a pod out of quarantine, if it is there, as all of it is known or
// it is gone. Where an inspection of one pod works again, those of others may:
// the next in line need not wait any longer.
func (d *Differ) release(rec *record) {
	if rec.hang == nil {
		return
	}
	pod, q, now := rec.named(nil), &d.quarantine, time.Now()
	d.log.Info("pod released from quarantine", "podUID", rec.uid, "pod", pod.Namespace+"/"+pod.Name,
		"gone", rec.sent.pod == nil, "after", now.Sub(rec.hang.since), "hung", rec.hang.times)
	rec.hang = nil
	q.pods = slices.DeleteFunc(q.pods, func(r *record) bool { return r == rec })
	next := slices.IndexFunc(q.pods, func(r *record) bool { return !r.busy && r.hang.due.After(now) })
	if rec.asked && next >= 0 {
		d.wait(q.pods[next], 0)
		return
	}
	d.publish()
}

// publish tells others what is in quarantine.
func (d *Differ) publish() {
	pods := make([]pleg.Quarantined, 0, len(d.quarantine.pods))
	for _, rec := range d.quarantine.pods {
		pod := rec.named(nil)
		pods = append(pods, pleg.Quarantined{
			UID: rec.uid, Namespace: pod.Namespace, Name: pod.Name,
			Since: rec.hang.since, Hung: rec.hang.times, NextTry: rec.hang.due, Err: rec.hang.err,
		})
	}
	d.quarantine.published.Store(&pods)
	d.metrics.quarantined.Set(float64(len(pods)))
}
