package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// record is what the differ knows of one pod: the kubelet's podRecord.
type record struct {
	uid pleg.PodUID
	// old is the observation that the cache and the subscribers are at; nil
	// before the pod's first change has settled.
	old *pleg.Pod
	// current is the newest observation, made at the time at; nil once the pod
	// is gone.
	current *pleg.Pod
	at      time.Time
	// unchanged is the last observation found to be the same as old, so that a
	// runtime which returns the same pointer again costs one comparison.
	unchanged *pleg.Pod
	// listing is the number of the last listing that had the pod.
	listing uint64

	// sent is the observation under way, queued or with the inspector, while
	// busy; anew is set if it serves a request.
	sent   *pleg.Pod
	sentAt time.Time
	anew   bool
	busy   bool
	// failed is set from a failed inspection until the next one.
	failed bool
	// reinspect is set from a request until the change that serves it.
	reinspect bool
}

// pod is what is known of the pod's name.
func (r *record) pod() *pleg.Pod {
	switch {
	case r.current != nil:
		return r.current
	case r.old != nil:
		return r.old
	default:
		return &pleg.Pod{UID: r.uid}
	}
}

// next returns the change from old to current, and whether there is one. A
// reinspection without a difference is a PodSync.
func (r *record) next() (stage.Change, bool) {
	if r.current != nil && r.current == r.unchanged && !r.failed && !r.reinspect {
		return stage.Change{}, false
	}
	c := stage.Change{UID: r.uid, Pod: r.current, At: r.at, Anew: r.reinspect}
	c.Events = events(r.old, r.current, r.at)
	switch {
	case len(c.Events) > 0:
	case r.failed || r.reinspect:
		c.Events = append(c.Events, podEvent(pleg.PodSync, r.pod(), r.at))
	case r.current == nil && r.old != nil:
		// Nothing to tell, but the cache entry has to go.
	default:
		r.unchanged = r.current
		return stage.Change{}, false
	}
	return c, true
}

// begin notes that a change is under way.
func (r *record) begin(c stage.Change) {
	r.sent, r.sentAt, r.anew, r.busy = c.Pod, c.At, c.Anew, true
	// Cleared before the inspection, so that a request made during it counts.
	r.reinspect = false
}

// settle moves the record on after a success, and leaves it for the next
// listing to try again after an error.
func (r *record) settle(err error) {
	r.busy = false
	if err != nil {
		r.failed = true
		r.reinspect = r.reinspect || r.anew
	} else {
		r.failed = false
		r.old, r.unchanged = r.sent, r.sent
	}
	r.sent = nil
}

// settled reports whether the cache and the subscribers have all of the record.
func (r *record) settled() bool { return !r.busy && !r.failed }
