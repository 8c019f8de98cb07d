package differ

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// retries are the pods in quarantine: their last inspection hung or failed late. One that
// hung is inspected again at the next list, as after any failure, then after a wait that
// doubles from the relist period. Those that failed late wait for a relist period, and one
// of them is inspected at a time, as by the serial kubelet. Other pods that wait for an
// inspection go first, unless the retry is urgent or overdue.
type retries struct {
	firstWait, maxWait time.Duration
	log                *slog.Logger
	size               prometheus.Gauge
	// pods are in the order in which their waits end.
	pods []*record
	// late is the pod in flight whose last inspection failed late.
	late *record
	// published is the copy for other goroutines.
	published atomic.Pointer[[]pleg.Quarantined]
}

// hang is what is known of a pod in quarantine.
type hang struct {
	// since is when the first inspection that hung began, tried when the last one ended, due
	// when the wait ends.
	since, tried, due time.Time
	// times is the number of inspections in a row that hung or failed late; late is set
	// if the last one failed late.
	times int
	late  bool
	// changed is set once the pod has changed, which ends one wait.
	changed bool
	// listed is set once a list was asked for after the wait, seen once the pod was observed
	// after the failure: as after any other, the retry inspects what the pod is then.
	listed, seen bool
	// urgent is set by a request: the retry does not wait for other pods.
	urgent bool
	// proven is set once an inspection has shown that the pod hangs, not the runtime.
	proven bool
	// began is when the inspector accepted the last retry, yields is set once that was
	// cancelled for another pod.
	began  time.Time
	yields bool
	// err is the error of the last inspection, call what one of them waited for; nil if that is
	// not known.
	err  error
	call *pleg.Call
}

// waitAfter returns the wait after an inspection that hung or failed late.
func (q *retries) waitAfter(h *hang) time.Duration {
	switch {
	case h.urgent, h.times == 1 && !h.late:
		return 0
	case h.late:
		return min(q.firstWait, q.maxWait)
	}
	wait := q.firstWait
	for n := 2; n < h.times && wait < q.maxWait; n++ {
		wait *= 2
	}
	return min(wait, q.maxWait)
}

// add quarantines a pod whose inspection hung or failed late, or makes it wait longer.
func (q *retries) add(rec *record, s stage.Settled, now time.Time) {
	entered := rec.hang == nil
	if entered {
		rec.hang = &hang{since: now.Add(-s.Took)}
		q.pods = append(q.pods, rec)
	}
	h := rec.hang
	h.times++
	h.late, h.seen, h.tried, h.err = s.Late, false, now, s.Err
	h.proven = h.proven || s.Proven
	if of, ok := errors.AsType[*pleg.CallError](s.Err); ok {
		h.call = &of.Call
	}
	wait := q.waitAfter(h)
	if entered {
		pod := rec.nameOf(nil)
		q.log.Warn("pod quarantined, inspection hung", "podUID", rec.uid, "pod", pod.Namespace+"/"+pod.Name,
			"age", s.Hung, "failedLate", s.Late, "nextTry", max(wait, q.firstWait), "err", s.Err)
	}
	q.wait(rec, now.Add(wait))
}

// wait sets when the pod's next retry is due.
func (q *retries) wait(rec *record, until time.Time) {
	rec.hang.due, rec.hang.listed = until, false
	slices.SortStableFunc(q.pods, func(a, b *record) int { return a.hang.due.Compare(b.hang.due) })
	q.publish()
}

// failedPromptly arranges a retry at the next list, because the last one failed without hanging.
func (q *retries) failedPromptly(rec *record, now time.Time) {
	rec.hang.seen, rec.hang.tried = false, now
	q.wait(rec, now)
}

// check reports whether a list is needed, because a wait has ended and the pod was not
// observed since, and when to ask again; zero if nothing waits.
func (q *retries) check(now time.Time) (list bool, again time.Time) {
	for _, rec := range q.pods {
		h := rec.hang
		if h.due.After(now) {
			return list, h.due
		}
		if !h.listed && !h.seen && !rec.state.inFlight() {
			h.listed, list = true, true
		}
	}
	return list, time.Time{}
}

// hold leaves an observed change of a quarantined pod for its next retry. The first change
// ends the wait.
func (q *retries) hold(rec *record, now time.Time) {
	rec.hang.seen = true
	if !rec.hang.changed && !same(rec.sent.pod, rec.current.pod) {
		rec.hang.changed = true
		q.wait(rec, now)
	}
}

// request ends the wait of a pod, or that after the retry in flight.
func (q *retries) request(rec *record, now time.Time) {
	rec.hang.urgent = true
	q.wait(rec, now)
}

// next returns the first pod whose wait has ended and that has a change to inspect; nil if
// there is none. Until the change is accepted, the record takes newer observations.
func (q *retries) next(othersWait bool, now time.Time) (*record, stage.Change) {
	for _, rec := range q.pods {
		h := rec.hang
		if h.due.After(now) {
			break
		}
		overdue := now.Sub(h.tried) >= q.maxWait
		switch {
		case rec.state.inFlight(), !h.seen:
			continue
		case h.late && q.late != nil && !overdue:
			continue
		case othersWait && !h.urgent && !overdue:
			continue
		}
		if change, ok := rec.next(); ok && needsInspection(change) {
			change.Retry = true
			return rec, change
		}
	}
	return nil, stage.Change{}
}

// yield returns the retry in flight that is to be cancelled, if a pod that is due has waited
// for maxWait and found no free place for firstWait, and when to ask again; zero if never.
// Otherwise 40 hung pods fill the places for retries for 20 minutes
// (TestQuarantinedPodsAreTriedInTime). Only one that is known to hang yields, after at least
// firstWait.
func (q *retries) yield(now time.Time) (oldest *record, again time.Time) {
	var overdue time.Time
	for _, rec := range q.pods {
		switch h := rec.hang; {
		case rec.state.inFlight() && h.yields:
			return nil, time.Time{}
		case rec.state.inFlight() && h.proven && (oldest == nil || h.began.Before(oldest.hang.began)):
			oldest = rec
		case !rec.state.inFlight() && h.seen && !h.due.After(now):
			overdue = stage.Earlier(overdue, h.tried.Add(q.maxWait+q.firstWait))
		}
	}
	if oldest == nil || overdue.IsZero() {
		return nil, time.Time{}
	}
	if at := later(overdue, oldest.hang.began.Add(q.firstWait)); at.After(now) {
		return nil, at
	}
	oldest.hang.yields = true
	return oldest, time.Time{}
}

// sent notes that the inspector has accepted a retry, ended that a change has settled.
func (q *retries) sent(rec *record, now time.Time) {
	rec.hang.began, rec.hang.yields = now, false
	if rec.hang.late {
		q.late = rec
	}
}

func (q *retries) ended(rec *record) {
	if q.late == rec {
		q.late = nil
	}
}

// release removes a pod because its state is known or it is gone. If an inspection
// of it has succeeded, those of others may succeed too: the next pod in line waits
// no longer.
func (q *retries) release(rec *record, inspected bool, now time.Time) {
	pod := rec.nameOf(nil)
	q.log.Info("pod released from quarantine", "podUID", rec.uid, "pod", pod.Namespace+"/"+pod.Name,
		"gone", rec.current.pod == nil, "after", now.Sub(rec.hang.since), "hung", rec.hang.times)
	rec.hang = nil
	q.pods = slices.DeleteFunc(q.pods, func(r *record) bool { return r == rec })
	next := slices.IndexFunc(q.pods, func(r *record) bool { return !r.state.inFlight() && r.hang.due.After(now) })
	if inspected && next >= 0 {
		q.wait(q.pods[next], now)
		return
	}
	q.publish()
}

func (q *retries) publish() {
	pods := make([]pleg.Quarantined, 0, len(q.pods))
	for _, rec := range q.pods {
		pod := rec.nameOf(nil)
		pods = append(pods, pleg.Quarantined{
			UID: rec.uid, Namespace: pod.Namespace, Name: pod.Name,
			Since: rec.hang.since, Hung: rec.hang.times, NextTry: rec.hang.due, Err: rec.hang.err, Call: rec.hang.call,
		})
	}
	q.published.Store(&pods)
	q.size.Set(float64(len(pods)))
}

// Quarantined returns the quarantined pods in the order in which their waits end.
// The slice must not be modified. It is safe for concurrent use.
func (d *Differ) Quarantined() []pleg.Quarantined {
	if pods := d.retries.published.Load(); pods != nil {
		return *pods
	}
	return nil
}
