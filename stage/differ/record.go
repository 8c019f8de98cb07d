package differ

import (
	"cmp"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// phase is the stage of a pod between an answer and the log:
//
//	   +----------------- committed ----------------+
//	   v                                            |
//	settled ---answer---> queued ---accepted---> inspecting
//	                        ^                       |
//	                        +--answer--- failed <---+
//
// In each phase, an answer that lacks the pod leads to leaving, which needs no slot, and then to
// settled. If the pod is gone or replaced, its inspection is cancelled first.
type phase uint8

const (
	settled    phase = iota // the log contains the newest answer
	queued                  // next waits for a slot
	inspecting              // sent is at the inspector
	failed                  // the inspection failed; if the pod is held, next is its retry after the next answer
	leaving                 // the pod is gone, sent is at the inspector
)

// need says whether a pod is inspected although nothing differs, and how.
type need uint8

const (
	none  need = iota
	again      // the last inspection failed
	fresh      // a request: every status is fetched
)

// record is the differ's state of one pod (the kubelet's podRecord). Its phase decides what comes
// next. Inputs about the pod enter by the methods answered, accepted, ended, requested and cut,
// which return the work to do. Only this file writes a record.
type record struct {
	uid   pleg.PodUID
	phase phase
	// old is the pod in the cache and the log; nil before its first change is
	// committed.
	old *pleg.Pod
	// current is the newest answer that counts; nil if it shows that the pod is gone.
	current *pleg.Pod
	asked   stage.Asked
	// named is the newest pod, kept for its name until its end is reported.
	named *pleg.Pod
	// found is the pod in the first listing, until its first change is committed.
	found *pleg.Pod
	// listed is the tick at which the last listing began that showed the pod.
	listed uint64
	unseen unseen

	// next is the change that waits for a slot, sent the one at the inspector, or the last one.
	next *stage.Change
	sent sent
	need need
	// held is set while the pod is in quarantine, during retries too.
	held bool
	// replaced is set once nobody waits for an inspection because other containers use the UID.
	// Until the pod is settled the next inspections are not cancelled for that: otherwise a pod
	// that is replaced at each list gets no status.
	replaced bool
	// urgent is set by a request until the next inspection: in quarantine, it does not wait for
	// other pods. asksEnd is the time at which a request last asked for the end of an inspection.
	urgent  bool
	asksEnd time.Time

	// until is the newest answer that is settled.
	until stage.Asked
	// owes is the tick at which the first listing began that waits for this pod; 0 if none does.
	owes uint64
}

// sent is the part of a change that a record keeps: a change is large.
type sent struct {
	pod     *pleg.Pod
	asked   stage.Asked
	passed  int // how many of them the change reports
	need    need
	timeout time.Duration // of a retry
}

// todo is the work that follows for the machine.
type todo struct {
	counts  bool          // the answer counts
	relist  bool          // the pod is to be listed again
	found   bool          // the answer shows a change
	enqueue bool          // next waits for a slot
	dequeue bool          // the pod no longer waits for a slot
	cancel  bool          // nobody waits for the inspection
	release bool          // out of quarantine
	touch   bool          // the cache contains the newest answer
	leave   *stage.Change // needs no inspection
}

// answered takes an answer about the pod. It counts if it began after the newest known answer had
// arrived. Otherwise the pod is listed again, unless an answer that began later is known. listing
// is the tick at which the newest listing began.
func (r *record) answered(pod *pleg.Pod, asked stage.Asked, listing uint64, l *lives) todo {
	if asked.Began < r.asked.Answered {
		r.named = cmp.Or(r.named, pod)
		return todo{relist: asked.Began > r.asked.Began}
	}
	was := r.current
	// If the inspection fails, the kubelet reports no change that only one list has shown.
	v := view{old: r.old, shown: was, waits: r.next != nil || r.busy() || r.phase == failed && !l.kubelet()}
	if r.busy() {
		v.sent = r.sent.pod
	}
	l.answered(&r.unseen, v, pod, asked.Began)
	r.current, r.asked = pod, asked
	r.named = cmp.Or(pod, r.named, r.unseen.pod())
	if r.phase == queued && len(r.unseen.passed) == 0 && equal(was, pod) {
		r.renew() // while thousands of pods wait, a list comes each second
		return todo{counts: true}
	}
	do := r.consider(listing, l)
	do.counts, do.found = true, r.phase != settled && !same(was, pod)
	return do
}

// renew makes the waiting change lead to the newest answer, which equals the previous answer.
func (r *record) renew() {
	r.next.Pod, r.next.Last, r.next.At = r.current, r.named, r.asked.At
	for i := range r.next.Events {
		r.next.Events[i].ObservedAt = r.asked.At
	}
}

// listedBy notes that a listing shows the pod.
func (r *record) listedBy(began uint64) { r.listed = began }

// foundBy notes that the first listing shows the pod.
func (r *record) foundBy(pod *pleg.Pod) { r.found = pod }

// accepted notes that the inspector accepted a change. A request made during the inspection counts.
func (r *record) accepted(c *stage.Change) {
	r.phase, r.next = inspecting, nil
	if c.Pod == nil {
		r.phase = leaving
	}
	r.sent = sent{c.Pod, r.asked, len(r.unseen.passed), r.need, c.Timeout}
	r.need, r.urgent = none, false
}

// ended takes the end of the change at the inspector, and compares the pod with the newest answer.
// If the inspection failed, the record stays where it was: the next answer, or the retry of a pod
// that hangs, finds the change again. If the pod is gone, nobody waits for another inspection.
func (r *record) ended(how stage.Ending, listing uint64, l *lives) (do todo) {
	switch how {
	case stage.Hangs:
		r.owes = 0 // nobody waits for a hung inspection
		return todo{}
	case stage.Committed, stage.Contradicted:
		l.committed(&r.unseen, r.uid, r.old, r.sent.pod, r.sent.passed)
		r.old, r.until, r.found = r.sent.pod, r.sent.asked, nil
		if r.owes > 0 {
			r.owes = max(r.owes, r.sent.asked.Began+1)
		}
	case stage.Superseded: // the inspected change is reported as it was listed
		if r.sent.need == fresh {
			r.need = fresh
		}
		r.replaced = true
		l.overlooked(&r.unseen, view{old: r.old, shown: r.sent.pod}, r.current)
	default:
		return r.failed(how, listing, l)
	}
	r.phase = settled
	released := r.held
	r.held = false
	if r.differs() {
		do = r.consider(listing, l)
	} else {
		r.settle()
	}
	do.touch = r.phase == settled && r.asked != r.sent.asked
	do.release = released
	return do
}

func (r *record) failed(how stage.Ending, listing uint64, l *lives) todo {
	r.phase, r.need = failed, max(r.need, r.sent.need, again)
	if !l.kubelet() {
		l.overlooked(&r.unseen, view{old: r.old, shown: r.sent.pod}, r.current)
	}
	if r.current == nil {
		return r.consider(listing, l)
	}
	r.owes = 0
	r.held = r.held || how == stage.FailedHung || how == stage.FailedLate
	if r.held && r.asked != r.sent.asked {
		return r.consider(listing, l)
	}
	return todo{}
}

// requested takes a request: for the end of a wait, or for a reinspection.
func (r *record) requested(q request, listing uint64, l *lives) (do todo) {
	if q.reinspect {
		r.need = fresh
	}
	r.urgent = r.urgent || q.cut || r.held
	if r.next != nil {
		do = r.consider(listing, l)
	}
	return do
}

// cut notes that a request asks for the end of the inspection, and reports whether it may: once in
// each period.
func (r *record) cut(period time.Duration, now time.Time) bool {
	if !r.busy() || now.Sub(r.asksEnd) < period {
		return false
	}
	r.asksEnd = now
	return true
}

// consider decides the consequence of the newest answer: nothing, an inspection as soon as there is
// a slot, or the end of the pod, which needs no inspection.
func (r *record) consider(listing uint64, l *lives) (do todo) {
	if r.busy() {
		do.cancel = r.obsolete()
		return do
	}
	c, waited := r.change(l), r.phase == queued
	r.next = c
	if r.current == nil {
		do.release, r.held = r.held, false
	}
	switch {
	case c == nil: // only the order differs, or nothing was reported of it
		r.settle()
	case r.held: // nobody waits for a retry
		c.Retry = true
	default:
		r.phase = queued
		if r.owes == 0 {
			r.owes = listing + 1
		}
		if c.Pod == nil {
			r.accepted(c)
			do.leave = c
		}
	}
	do.enqueue, do.dequeue = !waited && r.phase == queued, waited && r.phase != queued
	return do
}

// recheck returns a change without events, for a pod whose status contradicts its list; nil if no
// answer came since, or if the pod is inspected anyway.
func (r *record) recheck() *stage.Change {
	if r.phase != settled || r.current == nil || r.asked == r.sent.asked {
		return nil
	}
	return &stage.Change{UID: r.uid, Pod: r.current, Last: r.named, At: r.asked.At, Retry: true}
}

// settle notes that everything known of the pod is delivered.
func (r *record) settle() {
	r.phase, r.until, r.owes, r.replaced, r.found = settled, r.asked, 0, false, nil
	if r.current == nil && r.listed <= r.asked.Began { // a later listing does not show it
		r.named = nil
	}
}

// busy reports whether a change of the pod is at the inspector.
func (r *record) busy() bool { return r.phase == inspecting || r.phase == leaving }

// differs reports whether the newest answer shows a change to publish. A reinspection waits for the
// next answer.
func (r *record) differs() bool { return len(r.unseen.passed) > 0 || !same(r.old, r.current) }

// change returns the change from old to the newest answer; nil if there is none. A reinspection,
// or a retry, without a difference is a PodSync, if anything was reported of the pod.
func (r *record) change(l *lives) *stage.Change {
	if r.current != nil && r.need == none && !r.differs() {
		return nil
	}
	at := r.asked.At
	told := events(r.old, r.current, r.unseen.passed, l, at)
	switch {
	case len(told) > 0:
		if r.found != nil {
			markFound(told, r.found)
		}
	case r.need != none && r.named != nil && (r.old != nil || l.kubelet()):
		told = append(told, podEvent(pleg.PodSync, r.named, at))
	case r.need != none && r.named != nil: // the cache contains an old status of it, or an error
	case r.current != nil || r.old == nil: // otherwise the cache entry has to go
		return nil
	}
	return &stage.Change{UID: r.uid, Pod: r.current, Last: r.named, At: at, Reinspect: r.need == fresh, Events: told}
}

// behind reports whether the pod is not settled for a listing that began at this tick.
func (r *record) behind(began uint64) bool { return r.named != nil && r.until.Began < began }

// owesTo reports whether a listing that began at this tick waits for the pod.
func (r *record) owesTo(began uint64) bool { return r.owes > 0 && r.owes <= began }

// empty reports whether the pod is gone and nothing about it waits to be published.
func (r *record) empty() bool {
	return r.current == nil && r.old == nil && !r.busy() && len(r.unseen.passed) == 0 && len(r.unseen.heard) == 0
}

// hear adds a life, which an event began.
func (r *record) hear(h life) { r.unseen.heard = append(r.unseen.heard, h) }

// shows reports whether an answer about the pod, or an event, has shown that a container started.
func (r *record) shows(id pleg.ContainerID) bool {
	return isBeyondCreated(r.current, id) || isBeyondCreated(r.old, id) || isBeyondCreated(r.sent.pod, id) || r.unseen.has(id)
}

// obsolete reports whether nobody waits for an inspection, because the inspected pod no longer
// exists: it is gone, or its UID belongs to a new pod.
func (r *record) obsolete() bool {
	if r.current == nil || r.sent.pod == nil {
		return r.sent.pod != nil
	}
	if r.replaced {
		return false
	}
	left, had := false, false
	each(r.sent.pod, func(c *pleg.Container, _ bool) {
		had = true
		left = left || hasContainer(r.current, c.ID)
	})
	return had && !left
}

// podName is namespace/name of a pod that was inspected.
func (r *record) podName() string { return r.named.Namespace + "/" + r.named.Name }
