package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// maxSteps bounds the observations of one pod that wait for the change in flight.
// Without CRI events there is at most one: a later listing replaces an earlier one.
const maxSteps = 16

// state is where a pod stands between two observations.
//
//	          +------------- inspection succeeded --------------+
//	          v                                                 |
//	      settled ---------- change to inspect --------> inspecting <--+
//	       |   ^                                          |        |   |
//	change |   | passed on                         failed |   hung |   | retry
//	       v   |                                          v        v   |
//	     forwarding <--- gone, or its status is known -- failed   quarantined
type state uint8

const (
	// stateSettled: the cache and the subscribers have all that was observed of
	// the pod. The next observation that differs from the old pod makes a change.
	stateSettled state = iota

	// stateInspecting: a change is queued for an inspector or with one. What is
	// observed meanwhile waits in the record and is compared when the change
	// settles.
	stateInspecting

	// stateForwarding: a change is on its way that needs no inspection. The pod
	// is gone, its status came with a CRI event, or the change is delivered
	// uninspected after too many failures. In the last case the pod returns to
	// stateFailed or stateQuarantined afterwards.
	stateForwarding

	// stateFailed: the last inspection failed. The old pod stays what it was, so
	// the next observation finds the change again and the pod is inspected again.
	stateFailed

	// stateQuarantined: the last inspection hung. As stateFailed, but the retry
	// waits until its time has come and no other pod waits for an inspector.
	stateQuarantined
)

// inFlight reports whether a change of the pod is on its way.
func (s state) inFlight() bool { return s == stateInspecting || s == stateForwarding }

// retrying reports whether the last inspection failed.
func (s state) retrying() bool { return s == stateFailed || s == stateQuarantined }

// observation is what the runtime had of the pod at one time.
type observation struct {
	pod *pleg.Pod // nil if it was gone
	at  time.Time
	// status came with a CRI event; nil if the runtime has to be asked.
	status *pleg.PodStatus
	// step is true if a CRI event made it: what it shows may be over by the next
	// observation, so it must not be skipped. single is true if a single-pod list
	// made it, and not a listing.
	step, single bool
}

// sentChange is what a record keeps of a change, which is large.
type sentChange struct {
	pod                    *pleg.Pod
	at                     time.Time
	reinspect, uninspected bool
}

// record is what the differ knows of one pod (the kubelet's podRecord). Its
// methods decide which change comes next; the schedule decides when.
type record struct {
	uid   pleg.PodUID
	state state
	// old is the pod that the cache and the subscribers have; nil before its
	// first change has settled.
	old *pleg.Pod
	// received is when the last single-pod list of the pod was applied.
	received time.Time
	// current is the newest observation. steps are the CRI events before it that
	// have not become a change yet.
	current observation
	steps   []observation
	// named is the newest observed pod, kept for its name once the pod is gone.
	named *pleg.Pod
	// unchanged is the last observed pod that equalled old, so that a runtime
	// which returns the same pointer again costs one comparison.
	unchanged *pleg.Pod
	// listing is the number of the last listing that had the pod.
	listing uint64

	// sent is the change in flight, or the last one.
	sent sentChange
	// failures counts failed inspections since events were last delivered.
	failures int
	// reinspect is set from a request until the change that serves it.
	reinspect bool
	// hang is set while the pod is in quarantine, during retries too.
	hang *hang
}

// add adds a newer observation.
func (r *record) add(o observation) {
	if r.state.inFlight() && r.current.step && r.isNewer() && len(r.steps) < maxSteps {
		r.steps = append(r.steps, r.current)
	}
	r.current = o
	if o.pod != nil {
		r.named = o.pod
	}
}

// mayBeOlder reports whether an observation may be older than the current one although
// it began later: a listing and a single-pod list ran at the same time. That is not
// known until it takes something back. received is when the current one was applied.
func (r *record) mayBeOlder(o *observation, received time.Time) bool {
	return r.current.single != o.single && r.overlaps(o, received)
}

func (r *record) overlaps(o *observation, received time.Time) bool {
	cur := &r.current
	if cur.at.IsZero() || cur.step || !o.at.Before(received) {
		return false
	}
	for have := range containers(cur.pod) {
		if now := containerOf(o.pod, have.ID); now == nil || behind(now, have) {
			return true
		}
	}
	return false
}

// isNewer reports whether something was observed after what was sent. Two
// observations may bear the same time.
func (r *record) isNewer() bool { return !r.current.at.Equal(r.sent.at) || r.current.pod != r.sent.pod }

// next returns the change to the next observation that makes one.
func (r *record) next() (stage.Change, bool) {
	for len(r.steps) > 0 {
		step := r.steps[0]
		r.steps = r.steps[1:]
		if c, ok := r.changeTo(step); ok {
			return c, true
		}
	}
	r.steps = nil
	return r.changeTo(r.current)
}

// changeTo returns the change from old to an observation, if there is one. A
// reinspection without a difference is a PodSync.
func (r *record) changeTo(to observation) (stage.Change, bool) {
	if to.pod != nil && to.pod == r.unchanged && !r.state.retrying() && !r.reinspect {
		return stage.Change{}, false
	}
	c := stage.Change{UID: r.uid, Pod: to.pod, At: to.at, Reinspect: r.reinspect}
	if !r.reinspect {
		c.Status = to.status
	}
	c.Events = events(r.old, to.pod, to.at)
	switch {
	case len(c.Events) > 0:
	case r.state.retrying() || r.reinspect:
		c.Events = append(c.Events, podEvent(pleg.PodSync, r.nameOf(to.pod), to.at))
	case to.pod == nil && r.old != nil:
		// No event, but the cache entry has to go.
	default:
		r.unchanged = to.pod
		return stage.Change{}, false
	}
	return c, true
}

// nameOf returns a pod with the name of this one, even once it is gone.
func (r *record) nameOf(pod *pleg.Pod) *pleg.Pod {
	switch {
	case pod != nil:
		return pod
	case r.named != nil:
		return r.named
	default:
		return &pleg.Pod{UID: r.uid}
	}
}

// send notes that a change is in flight.
func (r *record) send(c stage.Change) {
	r.sent = sentChange{c.Pod, c.At, c.Reinspect, c.Uninspected}
	r.state = stateForwarding
	if needsInspection(c) {
		r.state = stateInspecting
	}
	// Cleared before the inspection, so that a request made during it counts.
	r.reinspect = false
	if r.hang != nil {
		r.hang.requested = false
	}
}

// succeed moves the record on to what was sent.
func (r *record) succeed() {
	r.state = stateSettled
	if r.sent.uninspected {
		r.state = r.failedState()
	}
	r.failures = 0
	r.old, r.unchanged = r.sent.pod, r.sent.pod
}

// fail leaves the record where it was. The next observation then shows everything
// that has changed.
func (r *record) fail() {
	r.failures++
	r.reinspect = r.reinspect || r.sent.reinspect
	r.steps = nil
	r.state = r.failedState()
}

func (r *record) failedState() state {
	if r.hang != nil {
		return stateQuarantined
	}
	return stateFailed
}

// uninspectedChange returns the change that failed, to be delivered without an
// inspection, if it has events.
func (r *record) uninspectedChange() (stage.Change, bool) {
	c := stage.Change{UID: r.uid, Pod: r.sent.pod, At: r.sent.at, Uninspected: true}
	c.Events = events(r.old, c.Pod, c.At)
	for i := range c.Events {
		c.Events[i].Uninspected = true
	}
	return c, len(c.Events) > 0
}

// needsInspection reports whether the runtime has to be asked.
func needsInspection(c stage.Change) bool { return c.Pod != nil && c.Status == nil && !c.Uninspected }
