package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// maxSteps bounds the observations of one pod that wait for the change under
// way. Without events there is never more than one: a later listing takes the
// place of an earlier one.
const maxSteps = 16

// observation is what the runtime had of the pod at one moment.
type observation struct {
	pod *pleg.Pod // nil if it was gone
	at  time.Time
	// status came with it; nil if the runtime has to be asked.
	status *pleg.PodStatus
	// step is true if it came from an event: what it shows may be over by the
	// next observation, so that none may be skipped.
	step bool
}

// record is what the differ knows of one pod: the kubelet's podRecord.
type record struct {
	uid pleg.PodUID
	// old is the observation that the cache and the subscribers are at; nil
	// before the pod's first change has settled.
	old *pleg.Pod
	// current is the newest observation, steps the events before it that are
	// still to be told.
	current observation
	steps   []observation
	// seen is the newest observation that had the pod, and so its name.
	seen *pleg.Pod
	// unchanged is the last observation found to be the same as old, so that a
	// runtime which returns the same pointer again costs one comparison.
	unchanged *pleg.Pod
	// listing is the number of the last listing that had the pod.
	listing uint64

	// sent is the observation under way, queued or with the inspector, while
	// busy; anew is set if it serves a request.
	sent observation
	anew bool
	busy bool
	// asked is set if the runtime is asked for its status.
	asked bool
	// failed is set from a failed inspection until one succeeds; failures
	// counts them since events were last delivered.
	failed   bool
	failures int
	// uninspected is set while what is sent is delivered without an
	// inspection.
	uninspected bool
	// reinspect is set from a request until the change that serves it.
	reinspect bool
	// hang is set while the pod is in quarantine.
	hang *hang
}

// observe takes a newer observation.
func (r *record) observe(o observation) {
	if r.busy && r.current.step && r.newer() && len(r.steps) < maxSteps {
		r.steps = append(r.steps, r.current)
	}
	r.current = o
	if o.pod != nil {
		r.seen = o.pod
	}
}

// newer reports whether something was observed since what was sent. Two
// observations may bear the same time.
func (r *record) newer() bool { return !r.current.at.Equal(r.sent.at) || r.current.pod != r.sent.pod }

// next returns the change to the next observation that makes one.
func (r *record) next() (stage.Change, bool) {
	for len(r.steps) > 0 {
		step := r.steps[0]
		r.steps = r.steps[1:]
		if c, ok := r.change(step); ok {
			return c, true
		}
	}
	r.steps = nil
	return r.change(r.current)
}

// change returns the change from old to an observation, and whether there is
// one. A reinspection without a difference is a PodSync.
func (r *record) change(to observation) (stage.Change, bool) {
	if to.pod != nil && to.pod == r.unchanged && !r.failed && !r.reinspect {
		return stage.Change{}, false
	}
	c := stage.Change{UID: r.uid, Pod: to.pod, At: to.at, Anew: r.reinspect}
	if !r.reinspect {
		c.Status = to.status
	}
	c.Events = events(r.old, to.pod, to.at)
	switch {
	case len(c.Events) > 0:
	case r.failed || r.reinspect:
		c.Events = append(c.Events, podEvent(pleg.PodSync, r.named(to.pod), to.at))
	case to.pod == nil && r.old != nil:
		// Nothing to tell, but the cache entry has to go.
	default:
		r.unchanged = to.pod
		return stage.Change{}, false
	}
	return c, true
}

// named is what is known of the pod's name.
func (r *record) named(pod *pleg.Pod) *pleg.Pod {
	switch {
	case pod != nil:
		return pod
	case r.seen != nil:
		return r.seen
	default:
		return &pleg.Pod{UID: r.uid}
	}
}

// begin notes that a change is under way.
func (r *record) begin(c stage.Change) {
	r.uninspected = c.Uninspected
	r.sent, r.anew, r.busy = observation{pod: c.Pod, at: c.At}, c.Anew, true
	r.asked = asks(c)
	// Cleared before the inspection, so that a request made during it counts.
	r.reinspect = false
	if r.hang != nil {
		r.hang.requested = false
	}
}

// settle moves the record on after a success. After an error it leaves the
// record for the next observation, which then shows all that has changed.
func (r *record) settle(err error) {
	r.busy = false
	if err != nil {
		r.failed = true
		r.failures++
		r.reinspect = r.reinspect || r.anew
		r.steps = nil
		return
	}
	r.failed = r.uninspected
	r.failures = 0
	r.old, r.unchanged = r.sent.pod, r.sent.pod
}

// uninspectedChange returns the change that failed, to be delivered all the
// same, if there is anything to deliver.
func (r *record) uninspectedChange() (stage.Change, bool) {
	c := stage.Change{UID: r.uid, Pod: r.sent.pod, At: r.sent.at, Uninspected: true}
	c.Events = events(r.old, c.Pod, c.At)
	for i := range c.Events {
		c.Events[i].Uninspected = true
	}
	return c, len(c.Events) > 0
}

// settled reports whether the cache and the subscribers have all of the record.
func (r *record) settled() bool { return !r.busy && !r.failed }
