// Package stage declares the messages that cross the channels between the
// stages of the pipeline.
//
//	lister --Listing------> differ ==Change==> inspector --Outcome--> dispatcher
//	hinter --Observation-->   ^                    |
//	                          +------ Settled -----+
//
// Changes take one of three channels: those that need an inspection wait for a
// free inspector, those of pods that hung when they were inspected last may have
// but half of the inspectors, those that need none never wait.
//
// A message belongs to its receiver once it is sent; what it points to is
// read-only for both. The sender of a channel closes it.
package stage

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Listing is everything that the runtime had at one moment.
type Listing struct {
	// At is the time before the first call of the list.
	At   time.Time
	Pods []*pleg.Pod
	// StreamUp is true if the event stream was up at the previous listing. CRI
	// events should then have announced whatever this one shows.
	StreamUp bool
	// StreamBroke is true if that stream has ended since. A change it did not
	// announce is no reason to doubt a stream that is up.
	StreamBroke bool
}

// Observation is what the runtime had of one pod at one moment: the answer to a
// list of that pod, or a [pleg.Hint].
type Observation struct {
	UID pleg.PodUID
	// At is the time before the list, or when the runtime made the event.
	At time.Time
	// Pod is the whole pod; nil once it is gone. Not used if Hint is set.
	Pod *pleg.Pod
	// Hint is an event that tells of a part of the pod.
	Hint *pleg.Hint
}

// Change is work for the inspector: a pod whose containers changed, that is
// gone, or that is to be looked at again. The differ has at most one Change of
// a pod under way.
type Change struct {
	UID pleg.PodUID
	// Pod is the newest observation of the pod; nil once it is gone.
	Pod *pleg.Pod
	// At is the time of that observation.
	At time.Time
	// Events are what the change means, in order, without sequence number. The
	// inspector fills in what only the inspection knows.
	Events []pleg.Event
	// Status is the pod's status if it came with the observation: nothing has
	// to be asked then.
	Status *pleg.PodStatus
	// Reinspect serves a request: every status is fetched, final ones too.
	Reinspect bool
	// Hung is how often in a row the inspection of the pod has hung; 0 if the
	// last one did not.
	Hung int
	// Uninspected has the events delivered without an inspection, because too
	// many have failed. The cache keeps the error.
	Uninspected bool
	// Current makes this no change but a mark: everything listed before this
	// time has been settled. All other fields are empty then.
	Current time.Time
}

// Settled tells the differ how a Change ended.
type Settled struct {
	UID pleg.PodUID
	// Err is the inspection's error; nil means that the events are on their way
	// and, unless they go uninspected, that the cache holds the status.
	Err error
	// Hung is for how long the inspection ran if Err did not come promptly, or
	// only because it was given up; otherwise 0.
	Hung time.Duration
}

// OutcomeBuffer is the number of outcomes that may wait for the dispatcher. The
// inspector and the dispatcher would otherwise take turns for each of them,
// which costs more than the delivery.
const OutcomeBuffer = 64

// Outcome is a settled Change that may be delivered: the cache has been written.
type Outcome struct {
	UID pleg.PodUID
	// Pod is the observation that the pod is at now; nil once it is gone.
	Pod *pleg.Pod
	// Status is what the cache holds of it; nil once it is gone, and if the
	// events go uninspected.
	Status *pleg.PodStatus
	// Events are what to deliver, in order, without sequence number.
	Events []pleg.Event
	// Current makes this no outcome but a mark, as in [Change].
	Current time.Time
}
