package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// record is what the differ knows of one pod (the kubelet's podRecord). A pod is settled, or its
// change waits for a slot, or is in flight:
//
//	   +--------- inspection succeeded ---------+
//	   v                                        |
//	settled --changed--> next --slot---> sent --+
//	   |                  ^                |    |
//	   |                  +- next answer --+----+
//	   +------------- gone ------------> sent  failed
//
// A pod that is gone needs no slot, and no inspection of it is waited for.
type record struct {
	uid pleg.PodUID
	// old is the pod that the cache and the log have; nil before its first change is
	// committed.
	old *pleg.Pod
	// current is the newest answer that counts; nil if it shows that the pod is gone.
	current *pleg.Pod
	asked   stage.Asked
	// named is the newest pod, kept for its name until its end is reported.
	named *pleg.Pod
	// listing is when the last listing began that had the pod.
	listing uint64
	// passed are the containers that came and went since old, heard the containers that only events
	// have shown.
	passed []passed
	heard  []life

	// next is the change that waits for a slot: in the queue, or as a retry.
	next *stage.Change
	// sent is the change in flight, or the last change.
	inFlight bool
	sent     sent
	// reinspect is set from a request until the change that serves it, retry from a failed
	// inspection until one succeeds.
	reinspect, retry bool
	// quarantine is set while the pod's inspections hang, during retries too.
	quarantine *quarantine
	// replaced is set once an inspection was not waited for because other containers have the UID.
	// Until the pod is settled the next inspections are waited for: otherwise a pod that is
	// replaced at each list gets no status.
	replaced bool
	// urgent is set by a request until the next inspection: in quarantine, it does not wait for
	// other pods. cut is when a request last asked for the end of an inspection.
	urgent bool
	cut    time.Time

	// until is the newest answer that is settled.
	until stage.Asked
	// owes is when the first listing began that waits for this pod; 0 if none does.
	owes uint64
}

// sent is what a record keeps of a change, which is large.
type sent struct {
	pod       *pleg.Pod
	asked     stage.Asked
	passed    int // how many of them the change reports
	reinspect bool
	timeout   time.Duration // of a retry
}

// changed reports whether there is something to inspect or to publish.
func (r *record) changed() bool { return r.reinspect || r.retry || r.differs() }

// differs reports whether the newest answer has something to publish. A reinspection waits for the
// next answer.
func (r *record) differs() bool { return len(r.passed) > 0 || !same(r.old, r.current) }

// change returns the change from old to the newest answer; nil if there is none. A reinspection,
// or a retry, without a difference is a PodSync.
func (r *record) change() *stage.Change {
	if r.current != nil && !r.changed() {
		return nil
	}
	at := r.asked.At
	told := events(r.old, r.current, r.passed, at)
	switch {
	case len(told) > 0:
	case r.retry, r.reinspect && r.named != nil: // also of a pod without containers, which has no old
		told = append(told, podEvent(pleg.PodSync, r.named, at))
	case r.current != nil || r.old == nil: // otherwise the cache entry has to go
		return nil
	}
	return &stage.Change{UID: r.uid, Pod: r.current, Last: r.named, At: at, Reinspect: r.reinspect, Events: told}
}

// send notes that a change is in flight. A request made during the inspection counts.
func (r *record) send(c *stage.Change) {
	r.sent = sent{c.Pod, r.asked, len(r.passed), c.Reinspect, c.Timeout}
	r.next, r.inFlight = nil, true
	r.reinspect, r.urgent = false, false
}

// commit moves the record on to what was sent.
func (r *record) commit() {
	r.old, r.until, r.retry = r.sent.pod, r.sent.asked, false
	if r.passed = r.passed[r.sent.passed:]; len(r.passed) == 0 {
		r.passed = nil
	}
	if r.owes > 0 {
		r.owes = max(r.owes, r.sent.asked.Began+1)
	}
}

// settle notes that everything known of the pod is delivered.
func (r *record) settle() {
	r.until, r.owes, r.replaced = r.asked, 0, false
	if r.current == nil {
		r.named = nil
	}
}

// behind reports whether the pod is not settled as of a listing that began then.
func (r *record) behind(began uint64) bool { return r.named != nil && r.until.Began < began }

// empty reports whether the pod is gone and nothing about it waits to be published.
func (r *record) empty() bool {
	return r.current == nil && r.old == nil && !r.inFlight && len(r.passed) == 0 && len(r.heard) == 0
}

// shows reports whether a container of the pod is known and has not been reported as removed.
func (r *record) shows(id pleg.ContainerID) bool {
	return hasContainer(r.current, id) || hasContainer(r.old, id) || hasContainer(r.sent.pod, id) ||
		slices.ContainsFunc(r.passed, func(p passed) bool { return p.container.ID == id }) ||
		slices.ContainsFunc(r.heard, func(l life) bool { return l.container.ID == id })
}

// superseded reports whether nobody waits for an inspection, because nothing of what it inspects
// exists any more: the pod is gone, or its UID belongs to a new pod.
func (r *record) superseded() bool {
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
