package differ

import (
	"container/list"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// maxSteps bounds the observations of one pod that wait for the change in flight.
// Without CRI events there is at most one: a later listing replaces an earlier one.
const maxSteps = 64

// sentChange is what a record keeps of a change, which is large.
type sentChange struct {
	offered
	pod                    *pleg.Pod
	asOf                   time.Time
	reinspect, uninspected bool
}

// offered is what a record keeps of the last result of next: the time of the
// observation, and how many of the steps it covers.
type offered struct {
	at     time.Time
	covers int
}

// record is what the differ knows of one pod (the kubelet's podRecord). Its
// methods decide which change comes next; the schedule decides when.
type record struct {
	uid   pleg.PodUID
	state state
	// old is the pod that the cache and the subscribers have; nil before its
	// first change has settled.
	old *pleg.Pod
	// known is what the observations have shown so far.
	known known
	// current is what was known after the newest one. steps are the CRI events before it, in order,
	// that have not been delivered yet.
	current observation
	steps   []observation
	// named is the newest observed pod, kept for its name once the pod is gone.
	named *pleg.Pod
	// listing is the number of the last listing that had the pod.
	listing uint64
	offered offered

	// sent is the change in flight, or the last one.
	sent sentChange
	// lag is the place among the pods that are unsettled; nil if it is not one of them.
	lag *list.Element
	// failures counts failed inspections since events were last delivered.
	failures int
	// reinspect is set from a request until the change that serves it.
	reinspect bool
	// hang is set while the pod is in quarantine, during retries too.
	hang *hang
}

// add adds a newer observation. A CRI event before it that is not delivered yet stays a
// step. add returns how many events are lost because too many steps wait.
func (r *record) add(o observation) (lost int) {
	if r.current.step && r.state != stateSettled {
		lost = r.keepStep(o.pod)
	}
	r.current = o
	if o.pod != nil {
		r.named = o.pod
	}
	return lost
}

// keepStep makes the current observation a step before the next one, unless it shows
// what the step before showed. It returns how many events are lost if there is no room.
func (r *record) keepStep(next *pleg.Pod) (lost int) {
	if len(r.steps) == 0 {
		r.steps = append(r.steps, r.current)
		return 0
	}
	last, cur := &r.steps[len(r.steps)-1], &r.current
	switch {
	case same(last.pod, cur.pod):
		if last.status == nil {
			*last = *cur
		}
	case len(r.steps) < maxSteps:
		r.steps = append(r.steps, *cur)
	default:
		lost = len(events(last.pod, cur.pod, cur.at)) + len(events(cur.pod, next, cur.at)) - len(events(last.pod, next, cur.at))
	}
	return lost
}

// isNewer reports whether something was observed after what was sent. A container that ran
// unseen makes two observations of one time.
func (r *record) isNewer() bool {
	return r.current.pod != r.sent.pod || r.current.asOf.After(r.sent.asOf)
}

// next returns the change to the next observation that makes one. While the inspections
// of the pod fail, that is the first one that needs none, or else the newest: what is
// before it is delivered with it.
func (r *record) next() (stage.Change, bool) {
	first := 0
	if r.state.retrying() {
		for first < len(r.steps) && r.steps[first].pod != nil && r.steps[first].status == nil {
			first++
		}
	}
	for n := first; n < len(r.steps); n++ {
		if c, ok := r.changeTo(r.steps[n], n); ok {
			return c, true
		}
	}
	c, ok := r.changeTo(r.current, len(r.steps))
	if !ok {
		r.steps = nil
	}
	return c, ok
}

// changeTo returns the change from old through the first n steps to an observation, if
// there is one. A reinspection without a difference is a PodSync. A step that needs no
// inspection gets none even if a reinspection is requested, which then comes later.
func (r *record) changeTo(to observation, n int) (stage.Change, bool) {
	inspected := to.pod != nil && to.status == nil
	reinspect := r.reinspect && (inspected || n == len(r.steps)) && (to.pod != nil || r.old != nil)
	c := stage.Change{UID: r.uid, Pod: to.pod, At: to.asOf, Reinspect: reinspect}
	if !reinspect {
		c.Status = to.status
	}
	c.Events = r.eventsTo(to, n)
	switch {
	case len(c.Events) > 0:
	case n < len(r.steps): // what comes after it is newer
		return stage.Change{}, false
	case r.state.retrying() || reinspect:
		c.Events = append(c.Events, podEvent(pleg.PodSync, r.nameOf(to.pod), to.asOf))
	case to.pod == nil && r.old != nil:
		// No event, but the cache entry has to go.
	default:
		return stage.Change{}, false
	}
	r.offered = offered{to.at, n}
	if to.step {
		r.offered.covers++
	}
	return c, true
}

// eventsTo returns the events from old through the first n steps to an observation.
func (r *record) eventsTo(to observation, n int) []pleg.Event {
	var all []pleg.Event
	from := r.old
	for _, s := range r.steps[:n] {
		all = append(all, events(from, s.pod, s.asOf)...)
		from = s.pod
	}
	return append(all, events(from, to.pod, to.asOf)...)
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
	r.sent = sentChange{r.offered, c.Pod, c.At, c.Reinspect, c.Uninspected}
	r.state = stateForwarding
	if needsInspection(c) {
		r.state = stateInspecting
	}
	// Cleared before the inspection, so that a request made during it counts.
	r.reinspect = r.reinspect && !c.Reinspect
	if r.hang != nil {
		r.hang.urgent = false
	}
}

// succeed moves the record on to what was sent.
func (r *record) succeed() {
	r.state = stateSettled
	if r.sent.uninspected {
		r.state = r.failedState()
	}
	r.failures = 0
	r.steps = r.steps[min(r.sent.covers, len(r.steps)):]
	if len(r.steps) == 0 {
		r.steps = nil
	}
	r.old = r.sent.pod
}

// fail leaves the record and its steps where they were. The next observation then shows
// everything that has changed.
func (r *record) fail() {
	r.failures++
	r.reinspect = r.reinspect || r.sent.reinspect
	r.state = r.failedState()
}

func (r *record) failedState() state {
	if r.hang != nil {
		return stateQuarantined
	}
	return stateFailed
}

// superseded reports whether nothing of what is being inspected exists any more: the
// pod is gone, or its UID belongs to a new one.
func (r *record) superseded() bool {
	if r.state != stateInspecting || r.current.pod == nil {
		return r.state == stateInspecting
	}
	other := false
	for c := range containers(r.sent.pod) {
		if hasContainer(r.current.pod, c.ID) {
			return false
		}
		other = true
	}
	return other
}

// uninspectedChange returns the change that failed, to be delivered without an
// inspection, if it has events.
func (r *record) uninspectedChange() (stage.Change, bool) {
	c := stage.Change{UID: r.uid, Pod: r.sent.pod, At: r.sent.asOf, Uninspected: true}
	r.offered = r.sent.offered
	c.Events = r.eventsTo(observation{pod: c.Pod, asOf: c.At}, min(r.sent.covers, len(r.steps)))
	for i := range c.Events {
		c.Events[i].Uninspected = true
	}
	return c, len(c.Events) > 0
}

// needsInspection reports whether the runtime has to be asked.
func needsInspection(c stage.Change) bool { return c.Pod != nil && c.Status == nil && !c.Uninspected }
