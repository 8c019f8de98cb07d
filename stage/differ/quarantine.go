package differ

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// lateWaits is the number of relist periods after which a pod whose inspection failed
// late is inspected again although other pods wait.
const lateWaits = 5

// quarantine holds the pods whose last inspection hung or failed late. One that hung is
// inspected again at the next relist, as after any failure, then after a wait that
// doubles from the relist period. Those that failed late are inspected again a relist
// period later, one at a time, as the serial kubelet does. Other pods that wait for an
// inspection go first, but none waits longer than maxWait.
type quarantine struct {
	firstWait, maxWait time.Duration
	log                *slog.Logger
	size               prometheus.Gauge
	// relistSoon requests a list, without which no pod is inspected.
	relistSoon func()

	// pods are in the order in which their waits end.
	pods []*record
	// due fires when the next wait ends.
	due *time.Timer
	// lateRetry is the pod whose late failure is being retried.
	lateRetry *record
	// published is the copy for other goroutines.
	published atomic.Pointer[[]pleg.Quarantined]
}

// hang is what is known of a pod in quarantine.
type hang struct {
	since time.Time
	// times is the number of inspections in a row that hung or failed late; late is set
	// if the last one failed late.
	times int
	late  bool
	// tried is when the last one ended.
	tried time.Time
	// due is when the wait ends. The first change of the pod ends it early and
	// sets hasty; later changes do not.
	due   time.Time
	hasty bool
	// seen is set once the pod was observed after the failure. As after any other
	// failure, the retry inspects what the pod is then.
	seen bool
	// urgent is set by a request: the retry does not wait for other pods. requested is
	// set by a request during a retry: if the retry hangs too, the next one is urgent.
	urgent, requested bool
	err               error
}

// start returns the channel on which the loop learns that a wait has ended.
func (q *quarantine) start() <-chan time.Time {
	q.due = time.NewTimer(0)
	q.due.Stop()
	return q.due.C
}

// waitAfter returns the wait after so many hung inspections in a row.
func (q *quarantine) waitAfter(times int) time.Duration {
	if times == 1 {
		return 0
	}
	wait := q.firstWait
	for range times - 2 {
		if wait >= q.maxWait {
			break
		}
		wait *= 2
	}
	return min(wait, q.maxWait)
}

// add quarantines a pod whose inspection hung or failed late, or makes it wait longer.
func (q *quarantine) add(rec *record, s stage.Settled) {
	entered := rec.hang == nil
	if entered {
		rec.hang = &hang{since: time.Now()}
		q.pods = append(q.pods, rec)
	}
	h := rec.hang
	h.times++
	h.late, h.seen, h.tried, h.err = s.Late, false, time.Now(), s.Err
	wait := min(q.firstWait, q.maxWait)
	switch {
	case h.requested:
		wait, h.urgent = 0, true
	case !h.late:
		wait = q.waitAfter(h.times)
	}
	if entered {
		pod := rec.nameOf(nil)
		q.log.Warn("pod quarantined, inspection hung", "podUID", rec.uid, "pod", pod.Namespace+"/"+pod.Name,
			"age", s.Hung, "failedLate", s.Late, "nextTry", max(wait, q.firstWait), "err", s.Err)
	}
	q.wait(rec, wait)
}

// wait sets the time until the pod's next retry.
func (q *quarantine) wait(rec *record, wait time.Duration) {
	rec.hang.due = time.Now().Add(wait)
	slices.SortStableFunc(q.pods, func(a, b *record) int { return a.hang.due.Compare(b.hang.due) })
	q.checkDue()
	q.publish()
}

// failedPromptly has a pod retried at the next relist: its last retry failed
// without hanging.
func (q *quarantine) failedPromptly(rec *record) {
	rec.hang.seen, rec.hang.tried = false, time.Now()
	q.wait(rec, 0)
}

// checkDue requests a list if a retry needs one, and sets the timer for the next
// wait that ends.
func (q *quarantine) checkDue() {
	now := time.Now()
	for _, rec := range q.pods {
		if wait := rec.hang.due.Sub(now); wait > 0 {
			q.due.Reset(wait)
			return
		}
		if !rec.state.inFlight() && !rec.hang.seen {
			q.relistSoon()
		}
	}
}

// hold leaves an observed change of a quarantined pod for its next retry. The
// first change ends the wait.
func (q *quarantine) hold(rec *record) {
	rec.hang.seen = true
	if !rec.hang.hasty && !same(rec.sent.pod, rec.current.pod) {
		rec.hang.hasty = true
		q.wait(rec, 0)
	}
}

// request ends the wait of a pod, or that after the retry in flight.
func (q *quarantine) request(rec *record) {
	rec.hang.requested = rec.state.inFlight()
	rec.hang.urgent = true
	q.wait(rec, 0)
}

// mayGoFirst reports whether a retry need not wait for other pods.
func (q *quarantine) mayGoFirst(h *hang, now time.Time) bool {
	return h.urgent || q.overdue(h, now) || h.late && now.Sub(h.tried) >= lateWaits*q.firstWait
}

func (q *quarantine) overdue(h *hang, now time.Time) bool { return now.Sub(h.tried) >= q.maxWait }

// sent notes that the inspector has accepted a retry, ended that it has settled.
func (q *quarantine) sent(rec *record) {
	if rec.hang.late {
		q.lateRetry = rec
	}
}

func (q *quarantine) ended(rec *record) {
	if q.lateRetry == rec {
		q.lateRetry = nil
	}
}

// nextRetry returns the first pod whose wait has ended and that has a change to
// inspect; nil if there is none. If others wait, it has to be one that may go first.
func (q *quarantine) nextRetry(othersWait bool) (*record, stage.Change) {
	if len(q.pods) == 0 {
		return nil, stage.Change{}
	}
	now := time.Now()
	for _, rec := range q.pods {
		if rec.hang.due.After(now) {
			break
		}
		switch {
		case rec.state.inFlight(), !rec.hang.seen:
			continue
		case rec.hang.late && q.lateRetry != nil && !q.overdue(rec.hang, now):
			continue
		case othersWait && !q.mayGoFirst(rec.hang, now):
			continue
		}
		if change, ok := rec.next(); ok && needsInspection(change) {
			return rec, change
		}
	}
	return nil, stage.Change{}
}

// release removes a pod because its state is known or it is gone. If an inspection
// of it has succeeded, those of others may succeed too: the next pod in line waits
// no longer.
func (q *quarantine) release(rec *record, inspected bool) {
	pod, now := rec.nameOf(nil), time.Now()
	q.log.Info("pod released from quarantine", "podUID", rec.uid, "pod", pod.Namespace+"/"+pod.Name,
		"gone", rec.current.pod == nil, "after", now.Sub(rec.hang.since), "hung", rec.hang.times)
	rec.hang = nil
	q.pods = slices.DeleteFunc(q.pods, func(r *record) bool { return r == rec })
	next := slices.IndexFunc(q.pods, func(r *record) bool { return !r.state.inFlight() && r.hang.due.After(now) })
	if inspected && next >= 0 {
		q.wait(q.pods[next], 0)
		return
	}
	q.publish()
}

func (q *quarantine) publish() {
	pods := make([]pleg.Quarantined, 0, len(q.pods))
	for _, rec := range q.pods {
		pod := rec.nameOf(nil)
		pods = append(pods, pleg.Quarantined{
			UID: rec.uid, Namespace: pod.Namespace, Name: pod.Name,
			Since: rec.hang.since, Hung: rec.hang.times, NextTry: rec.hang.due, Err: rec.hang.err,
		})
	}
	q.published.Store(&pods)
	q.size.Set(float64(len(pods)))
}

// Quarantined returns the quarantined pods in the order in which their waits end.
// The slice must not be modified. It is safe for concurrent use.
func (d *Differ) Quarantined() []pleg.Quarantined {
	if pods := d.schedule.quarantine.published.Load(); pods != nil {
		return *pods
	}
	return nil
}
