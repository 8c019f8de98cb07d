// Package stage declares the messages that cross the channels between the stages of
// the pipeline.
//
//	        RelistSoon, RelistNow, ChangesUnannounced, ChangesAnnounced
//	   +----------------------+     +----------- Mark ----------+
//	   v                      |     |                           v
//	lister --Listing------> differ -+=Change, Cancel=> inspector --Outcome--> dispatcher
//	   ^                    ^   ^                          |
//	   | RelistNow,         |   +-------- Settled ---------+
//	   | StreamOpened,      |
//	   | StreamEnded        |
//	hinter --Observation----+
//	   ^       RequestRelist|
//	   +--------------------+
//
// RequestRelist and the arrows back to the lister are method calls that never block.
// All others are channels.
//
// A Change takes one of three channels. If it needs an inspection, it waits for a
// free place. If the pod's last inspection hung or failed late, it may take only half of
// the places. If it needs no inspection, it never waits.
//
// A message belongs to its receiver once it is sent; what it points to is read-only
// for both. The sender of a channel closes it; Inspect stands for all that the differ sends
// to the inspector.
//
// This package and those below it have no stability promise: embedders use the root package.
package stage

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// ContainerChanged means that a container is in a state that is none of the others. It only
// causes an inspection: the dispatcher drops it, as the kubelet does (v1.37,
// reconcilePodRecord), so that pleg has no such type.
const ContainerChanged pleg.EventType = "ContainerChanged"

// Listing is everything that the runtime had at one moment.
type Listing struct {
	// At is the time before the first call of the list.
	At time.Time
	// Answered is when the answer came.
	Answered time.Time
	Pods     []*pleg.Pod
	// StreamUp is true if the event stream was up at the previous listing. CRI
	// events should then have announced whatever this one shows.
	StreamUp bool
	// StreamBroke is true if that stream has ended since. A change it did not
	// announce is no reason to doubt a stream that is up.
	StreamBroke bool
	// Relisted are the callers that wait for this listing. The dispatcher sends nil
	// to each, which never blocks.
	Relisted []chan<- error
}

// Observation is what the runtime had of one pod at one time: the answer to a list of
// that pod, or a [pleg.Hint].
type Observation struct {
	UID pleg.PodUID
	// At is the time before the list, or when the runtime made the event; Answered is when
	// the answer came or the event arrived.
	At, Answered time.Time
	// AsOf is a time before the statuses of the event were gathered; zero means At.
	AsOf time.Time
	// Pod is the whole pod; nil once it is gone. Not used if Hint is set.
	Pod *pleg.Pod
	// Hint is a CRI event, which may cover only a part of the pod.
	Hint *pleg.Hint
}

// Change is work for the inspector: a pod that changed, that is gone, or that has to
// be inspected again. The differ has at most one Change of a pod in flight.
type Change struct {
	UID pleg.PodUID
	// Pod is the newest observation of the pod; nil once it is gone.
	Pod *pleg.Pod
	// At is the time up to which that observation shows everything: for a list its own
	// time, for a CRI event often an earlier one.
	At time.Time
	// Events are the events of the change, in order, without sequence numbers. The
	// inspector adds what only the inspection knows.
	Events []pleg.Event
	// Status is the pod's status if it came with the observation. The runtime is not
	// asked then.
	Status *pleg.PodStatus
	// Reinspect serves a request: every status is fetched, final ones too.
	Reinspect bool
	// Retry is set if the pod is quarantined.
	Retry bool
	// Uninspected delivers the events without an inspection, because too many
	// failed. The cache keeps the error.
	Uninspected bool
}

// Cancel asks for the end of a pod's inspection in flight.
type Cancel struct {
	UID pleg.PodUID
	// Yield is set if another quarantined pod needs its place. Otherwise the pod is gone, and
	// the inspection ends only if it hangs.
	Yield bool
}

// Mark says that everything observed until some time is published. The outcomes of the
// changes that it counts on were sent before it.
type Mark struct {
	// Current, if set, is the time of a listing: all of it is settled, except of the pods in
	// Behind. The first such mark says that the initial state is complete.
	Current time.Time
	// Behind are the pods that lag behind Current, those that lag most first.
	Behind []Behind
	// Relisted are callers that wait for a listing: the changes of all its pods have ended.
	Relisted []chan<- error
}

// Behind is a pod whose last observations are not settled: it waits for an inspection,
// or its inspections fail or hang.
type Behind struct {
	Pod *pleg.Pod
	// Until is the time of the last listing that is settled; zero if there is none.
	Until time.Time
}

// Settled is how a Change ended.
type Settled struct {
	UID pleg.PodUID
	// Err is the inspection's error. If nil, the events are on their way and, unless
	// they are uninspected, the cache has the status.
	Err error
	// Took is how long the inspection took; 0 if there was none.
	Took time.Duration
	// Hung is the age of the inspection if it was cancelled or has timed out; otherwise
	// 0. Late is set if it failed by itself, but after the time from which others hang.
	Hung time.Duration
	Late bool
	// Proven is set if it was overtaken or had its whole timeout. Otherwise the runtime may
	// only be slow.
	Proven bool
	// Superseded is set if it was cancelled because its pod is gone.
	Superseded bool
}

// OutcomeBuffer is the number of outcomes that may wait for the dispatcher. Without
// it the two stages would switch for each outcome, which costs more than the delivery.
const OutcomeBuffer = 64

// Outcome is a settled Change that may be delivered: the cache has been written.
type Outcome struct {
	UID pleg.PodUID
	// Pod is the pod as it was observed; nil once it is gone.
	Pod *pleg.Pod
	// Status is what the cache has of it; nil once it is gone and for uninspected
	// events.
	Status *pleg.PodStatus
	// Events are what to deliver, in order, without sequence number.
	Events []pleg.Event
}
