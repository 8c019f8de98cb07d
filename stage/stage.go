// Package stage declares the messages that cross the channels between the stages of
// the pipeline.
//
//	lister --Listing------> differ --Change, Cancel--> inspector --Outcome--> dispatcher
//	   ^                    ^ |  ^ |                      |                      ^
//	   | relist all         | |  | +--------- Mark -------|----------------------+
//	hinter --Observation----+ |  +------- Settled --------+
//	   ^                      |
//	   +----- relist a pod ---+
//
// The arrows back to the lister and to the hinter are method calls that never block. All
// others are channels.
//
// A Change takes one of four channels. If it needs an inspection, it waits for a free
// slot. Changes of quarantined pods take at most half of the slots. One slot is kept for a pod that
// changed after all others began. If the pod is gone, its change never waits.
//
// A message belongs to its receiver once it is sent; the values that it points to are read-only for
// both. The sender of a channel closes it; the end of Inspect is the end of all channels from the
// differ to the inspector.
//
// This package and the packages below it may change in any version: embedders use the root package.
package stage

import (
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// ContainerChanged means that a container is in a state that is neither running, exited nor gone.
// It only causes an inspection: the dispatcher drops it, as the kubelet does (v1.37,
// reconcilePodRecord). So package pleg does not declare it.
const ContainerChanged pleg.EventType = "ContainerChanged"

// ContainerRan comes before the end of a container that no list has shown running. The inspector
// makes it a ContainerStarted if the status says when the container started, and otherwise drops it.
const ContainerRan pleg.EventType = "ContainerRan"

// Ticks order answers of the runtime: a wall clock can be set back, and two of its readings can be
// equal. The lister and the hinter take a tick when a list begins and another when its answer has
// come.
type Ticks struct{ last atomic.Uint64 }

// Next returns a tick that is greater than all before it. It is safe for concurrent use.
func (t *Ticks) Next() uint64 { return t.last.Add(1) }

// Asked contains the ticks at which a list began and its answer arrived, and the wall-clock time
// before it began.
type Asked struct {
	Began, Answered uint64
	At              time.Time
}

// Listing contains all pods of the runtime at one moment.
type Listing struct {
	Asked
	Pods []*pleg.Pod
	// StreamUp is true if the event stream was up when the list began.
	StreamUp bool
	// Relisted are the callers that wait for this listing. The dispatcher sends nil
	// to each, which never blocks.
	Relisted []chan<- error
}

// Observation is the answer to a list of one pod.
type Observation struct {
	Asked
	UID pleg.PodUID
	// Pod is the whole pod; nil once it is gone.
	Pod *pleg.Pod
}

// Change is work for the inspector: a pod that changed, that is gone, or that has to
// be inspected again. At most one Change of a pod is in flight.
type Change struct {
	UID pleg.PodUID
	// Pod is the newest answer about the pod; nil once it is gone.
	Pod *pleg.Pod
	// Last is the last answer that showed the pod: it contains the labels of a pod that is gone.
	Last *pleg.Pod
	// At is a time just before that answer began.
	At time.Time
	// Events are the events of the change, in order, without sequence numbers. The inspector adds
	// the facts that only the inspection knows.
	Events []pleg.Event
	// Reinspect serves a request: every status is fetched, final ones too.
	Reinspect bool
	// Retry is set if the pod is quarantined. Timeout, if it is not 0, ends such an inspection
	// earlier than others.
	Retry   bool
	Timeout time.Duration
}

// Cancel asks for the end of a pod's inspection in flight.
type Cancel struct {
	UID pleg.PodUID
	// Gone is set if the inspected pod no longer exists. The inspection is cancelled at once.
	// Otherwise it ends only if it hangs or is older than After.
	Gone  bool
	After time.Duration
}

// Mark says that everything listed until some time is published. The outcomes of these changes were
// sent before it.
type Mark struct {
	// Current is the time of a listing: all of it is settled, except of the pods in
	// Behind. The first mark says that the initial state is complete.
	Current time.Time
	// Behind are the pods that lag behind Current, the longest lag first.
	Behind []Behind
	// Relisted are callers that wait for a listing: the changes of all its pods have ended.
	Relisted []chan<- error
}

// Behind is a pod whose newest answers are not settled: it waits for an inspection,
// or its inspections fail or hang.
type Behind struct {
	Pod *pleg.Pod
	// Until is the time of the last listing that is settled; zero if there is none.
	Until time.Time
}

// Settled says how a Change ended, or that its inspection hangs.
type Settled struct {
	UID pleg.PodUID
	How Ending
	// Err is the inspection's error, if it failed.
	Err error
	// Took is how long the inspection took; 0 if there was none.
	Took time.Duration
}

// Ending is how a change ended.
type Ending uint8

const (
	// NoEnding carries no news: its receiver has applied the ending before.
	NoEnding Ending = iota
	// Committed says that the cache has been written, and that the events are on their way.
	Committed
	// Contradicted says the same, but the status contradicts the list: the pod is to be inspected again.
	Contradicted
	// Failed says that the inspection failed, no later than others end.
	Failed
	// FailedLate says that it took longer than others before it failed or was cancelled. The runtime may
	// only be slow.
	FailedLate
	// FailedHung says that it was overtaken before it failed, or that its timeout ended it.
	FailedHung
	// Superseded says that it was cancelled because its pod is gone.
	Superseded
	// Hangs says that it has not ended, and hangs.
	Hangs
)

// OutcomeBuffer is the number of outcomes that may wait for the dispatcher. Without
// it the two stages would switch for each outcome, which costs more than the delivery.
const OutcomeBuffer = 64

// Outcome is a settled Change that may be delivered: the cache has been written.
type Outcome struct {
	UID pleg.PodUID
	// Pod is the pod as it was listed; nil once it is gone. Last is the last answer that showed the
	// pod.
	Pod, Last *pleg.Pod
	// Status is its status in the cache; nil once it is gone.
	Status *pleg.PodStatus
	// Events are the events to deliver, in order, without sequence numbers.
	Events []pleg.Event
}
