package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// state is where a pod stands between two answers.
//
//	           +------- inspection succeeded -------+
//	           v                                    |
//	        settled --changed--> queued --place--> inspecting
//	           |  ^                ^                 |
//	gone       |  | told           | next answer     | inspection failed
//	           v  |                |                 v
//	         leaving               +-------------- failed
//
// A pod that is gone leaves from every state: no inspection of it is waited for.
type state uint8

const (
	// settled: the cache and the log have the newest answer.
	settled state = iota
	// queued: the pod waits for a free place.
	queued
	// inspecting: the inspector has accepted a change.
	inspecting
	// leaving: the change to nothing is on its way.
	leaving
	// failed: the last inspection failed. The old pod stays what it was, so that the next
	// answer finds the change again.
	failed
)

// record is what the differ knows of one pod (the kubelet's podRecord).
type record struct {
	uid   pleg.PodUID
	state state
	// old is the pod that the cache and the log have; nil before its first change is
	// committed.
	old *pleg.Pod
	// current is the newest answer that counts; nil if it shows that the pod is gone.
	current *pleg.Pod
	asked   stage.Asked
	// named is the newest pod, kept for its name once the pod is gone.
	named *pleg.Pod
	// listing is the number of the last listing that had the pod.
	listing uint64
	// passed are the containers that came and went since old.
	passed []passed

	// sent is the change in flight, or the last one.
	sent sent
	// reinspect is set from a request until the change that serves it, retry from a failed
	// inspection until one succeeds.
	reinspect, retry bool
	// quarantine is set while the pod's inspections hang, during retries too.
	quarantine *quarantine
	// urgent is set by a request until the next inspection: in quarantine, it does not wait for
	// other pods. cut is when a request last asked for the end of an inspection.
	urgent bool
	cut    time.Time

	// until is the time of the last answer that was settled.
	until time.Time
	// owes is the number of the first listing that waits for this pod; 0 if none does.
	owes uint64
}

// sent is what a record keeps of a change, which is large.
type sent struct {
	pod       *pleg.Pod
	asked     stage.Asked
	listings  uint64 // the number of the newest listing then
	passed    int    // how many of them the change tells
	reinspect bool
}

// changed reports whether there is something to inspect or to tell.
func (r *record) changed() bool { return r.reinspect || r.retry || r.differs() }

// differs reports whether the newest answer has something to tell. A reinspection waits for the
// next answer.
func (r *record) differs() bool { return len(r.passed) > 0 || !same(r.old, r.current) }

// change returns the change from old to the newest answer; false if the answer only has
// another order. A reinspection, or a retry, without a difference is a PodSync.
func (r *record) change() (stage.Change, bool) {
	at := r.asked.At
	c := stage.Change{UID: r.uid, Pod: r.current, Last: r.named, At: at, Reinspect: r.reinspect, Events: events(r.old, r.current, r.passed, at)}
	switch {
	case len(c.Events) > 0:
	case r.retry, r.reinspect && r.named != nil: // also of a pod without containers, which has no old
		c.Events = append(c.Events, podEvent(pleg.PodSync, r.named, at))
	default:
		return c, r.current == nil && r.old != nil // the cache entry has to go
	}
	return c, true
}

// send notes that a change is in flight. A request made during the inspection counts.
func (r *record) send(c stage.Change, listings uint64) {
	r.sent = sent{c.Pod, r.asked, listings, len(r.passed), c.Reinspect}
	r.reinspect, r.urgent = false, false
	r.state = inspecting
	if c.Pod == nil {
		r.state = leaving
	}
}

// commit moves the record on to what was sent.
func (r *record) commit() {
	r.old, r.until, r.state, r.retry = r.sent.pod, r.sent.asked.At, settled, false
	if r.passed = r.passed[r.sent.passed:]; len(r.passed) == 0 {
		r.passed = nil
	}
}

// shows reports whether a container of the pod that is not told as removed is known.
func (r *record) shows(id pleg.ContainerID) bool {
	return hasContainer(r.current, id) || hasContainer(r.old, id) || hasContainer(r.sent.pod, id) ||
		slices.ContainsFunc(r.passed, func(p passed) bool { return p.container.ID == id })
}

// superseded reports whether nothing of what is being inspected exists any more: the
// pod is gone, or its UID belongs to a new one.
func (r *record) superseded() bool {
	if r.current == nil {
		return true
	}
	left, had := false, false
	each(r.sent.pod, func(c *pleg.Container, _ bool) {
		had = true
		left = left || hasContainer(r.current, c.ID)
	})
	return had && !left
}

// podName is namespace/name, even once the pod is gone.
func (r *record) podName() string {
	if r.named == nil {
		return string(r.uid)
	}
	return r.named.Namespace + "/" + r.named.Name
}
