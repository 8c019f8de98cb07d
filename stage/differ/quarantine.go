package differ

import (
	"errors"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// firstDeadline is the timeout of the first retry. It doubles with each retry. Among many pods only
// one retry at a time gets the longer timeout, so that hung pods free their slots.
const firstDeadline = 10 * time.Second

// quarantines are the pods whose last inspection hung. A wait that doubles precedes each retry, and
// healthy pods go first. No pod waits longer than longest: half of that is for the wait, half for a
// slot.
//
// If an inspection only takes long before it fails, the runtime may be slow: such pods wait for a
// relist period, and one of them is inspected at a time, as by the serial kubelet.
type quarantines struct {
	// first and longest bound the wait.
	first, longest time.Duration
	// slots is how many retries the inspector accepts at once.
	slots int
	// pods are in the order in which their waits end.
	pods []*quarantine
	// changed is set when the published list has changed.
	changed bool
}

// quarantine is the state of a quarantined pod.
type quarantine struct {
	pleg.Quarantined
	rec *record
	// tried is the time at which the last inspection ended; late is set if it failed late and did
	// not hang.
	tried time.Time
	late  bool
}

func newQuarantines(first, longest time.Duration, inspectors int) quarantines {
	return quarantines{first: first, longest: longest, slots: max(1, inspectors/2)}
}

// of returns the place of a pod that is held.
func (q *quarantines) of(rec *record) int {
	return slices.IndexFunc(q.pods, func(h *quarantine) bool { return h.rec == rec })
}

// add quarantines a pod whose inspection hung or failed late, or makes it wait longer. It reports
// whether the pod is new.
func (q *quarantines) add(rec *record, s stage.Settled, now time.Time) (h *quarantine, entered bool) {
	if i := q.of(rec); i >= 0 {
		h = q.pods[i]
	} else {
		entered = true
		h = &quarantine{rec: rec, Quarantined: pleg.Quarantined{
			UID: rec.uid, Namespace: rec.named.Namespace, Name: rec.named.Name, Since: now.Add(-s.Took),
		}}
		q.pods = append(q.pods, h)
	}
	h.Hung++
	h.late, h.tried, h.Err = s.How == stage.FailedLate, now, s.Err
	if of, ok := errors.AsType[*pleg.CallError](s.Err); ok {
		h.Call = &of.Call
	}
	wait := q.first
	for n := 1; n < h.Hung && wait < q.longest && !h.late; n++ {
		wait *= 2
	}
	if rec.urgent {
		wait = 0
	}
	q.wait(rec, now.Add(min(wait, q.longest/2)))
	return h, entered
}

// wait sets when the next retry of a pod that is held is due.
func (q *quarantines) wait(rec *record, until time.Time) {
	q.pods[q.of(rec)].NextTry = until
	slices.SortStableFunc(q.pods, func(a, b *quarantine) int { return a.NextTry.Compare(b.NextTry) })
	q.changed = true
}

// release removes a pod that was inspected with success, or is gone, and returns its quarantine.
// After a success others may succeed too: the next pod in line waits no longer.
func (q *quarantines) release(rec *record, inspected bool, now time.Time) pleg.Quarantined {
	i := q.of(rec)
	was := q.pods[i].Quarantined
	q.pods = slices.Delete(q.pods, i, i+1)
	q.changed = true
	if !inspected {
		return was
	}
	for _, next := range q.pods {
		if !next.rec.busy() && next.NextTry.After(now) {
			q.wait(next.rec, now)
			break
		}
	}
	return was
}

// patience is the age at which a request may end the pod's inspection, while nothing else shows that
// it hangs. It doubles with each inspection that hung, so that requests do not starve a slow runtime.
func (q *quarantines) patience(rec *record) time.Duration {
	if i := q.of(rec); i >= 0 {
		return q.first << min(q.pods[i].Hung, 10)
	}
	return q.first
}

// next returns the retry of the first pod whose wait has ended and that an answer has shown since
// its last inspection began: as after any failure, a retry inspects the pod as it is now. It returns
// nil if there is none. Healthy pods go first, but for no longer than the longest wait. again is the
// time to call next again if no input comes; zero if never.
func (q *quarantines) next(othersWait bool, now time.Time) (retry *stage.Change, again time.Time) {
	slow := slices.ContainsFunc(q.pods, func(h *quarantine) bool { return h.late && h.rec.busy() })
	for _, h := range q.pods {
		overdue := h.tried.Add(q.longest)
		switch {
		case h.NextTry.After(now):
			return nil, stage.Earlier(again, h.NextTry)
		case h.rec.next == nil: // in flight, or not listed again
		case !overdue.After(now), (h.rec.urgent || !othersWait) && (!h.late || !slow):
			change := *h.rec.next
			change.Timeout = q.timeout(h, now)
			return &change, time.Time{}
		default:
			again = stage.Earlier(again, overdue)
		}
	}
	return nil, again
}

// timeout returns the deadline of a retry; 0 is that of every inspection. Each pod is to be tried
// within the longest wait, however many pods there are. One retry at a time may take longer (with a
// single slot, one in each longest wait, for the time that the others leave): otherwise no retry
// would ever end on a runtime that was stuck and is now slow.
func (q *quarantines) timeout(h *quarantine, now time.Time) time.Duration {
	if h.late {
		return 0
	}
	full := firstDeadline << min(h.Hung-1, 6)
	fair := max(firstDeadline, q.longest/2*time.Duration(max(1, q.slots-1))/time.Duration(len(q.pods)))
	if left := q.longest - fair*time.Duration(len(q.pods)); q.slots == 1 && left > fair {
		full = min(full, left)
	}
	long := func(h *quarantine) bool {
		return h.rec.sent.timeout > fair && (h.rec.busy() || q.slots == 1 && now.Sub(h.tried) < q.longest)
	}
	if slices.ContainsFunc(q.pods, long) {
		return min(full, fair)
	}
	return full
}

// published returns a copy for other goroutines.
func (q *quarantines) published() []pleg.Quarantined {
	pods := make([]pleg.Quarantined, 0, len(q.pods))
	for _, h := range q.pods {
		pods = append(pods, h.Quarantined)
	}
	return pods
}
