package pleg

import (
	"context"
	"fmt"
	"time"
)

// Runtime is what the pipeline needs of a container runtime. Package cri implements
// it for every CRI endpoint; an embedder may have its own.
//
// Both methods must return soon after ctx ends and must be safe for concurrent use:
// ListPods runs beside any number of PodStatus calls of different pods. A panic or a
// runtime.Goexit in either counts as an error of that call.
type Runtime interface {
	// ListPods returns every pod with all its containers and sandboxes in all
	// states. For a pod that did not change since the last call it may return the
	// same pointer, which saves the comparison. After an error the pipeline keeps
	// what it knew: an error is never an empty node.
	ListPods(ctx context.Context) ([]*Pod, error)

	// PodStatus inspects one pod by the ids in it. Ids that the runtime no longer
	// knows are left out of the status and are not an error. last is the pod's last
	// good status, or nil if the runtime must be asked for everything. What cannot have
	// changed since may be taken from it: an exited container, and a sandbox that is
	// listed as ready, was ready, and had its addresses.
	PodStatus(ctx context.Context, pod *Pod, last *PodStatus) (*PodStatus, error)
}

// PodLister is a [Runtime] that can list one pod. With it, a single-pod relist does
// not list all pods.
type PodLister interface {
	// ListPod returns the pod as ListPods would, or nil if the pod is gone. It runs
	// beside ListPods and PodStatus.
	ListPod(ctx context.Context, uid PodUID) (*Pod, error)
}

// Degraded is a [Runtime] that reports when its lists work by a fallback.
type Degraded interface {
	// Degraded returns what is wrong, or nil. It does not block.
	Degraded() error
}

// CallReporter is a [Runtime] that reports the calls in flight, so that the status of
// the pipeline can name the call that hangs.
type CallReporter interface {
	// Calls returns the calls that the methods of the runtime wait for, the oldest
	// first. It does not block.
	Calls() []Call
}

// CallError is wrapped by the error of PodStatus that one call to the runtime caused, so that
// the status of the pipeline can name the call once it has ended too.
type CallError struct {
	Call Call
	Err  error
}

// Error names the call, and the container or the id that it is about.
func (e *CallError) Error() string { return fmt.Sprintf("%v %s: %v", &e.Call, e.Call.ID, e.Err) }

// Unwrap returns the error of the call.
func (e *CallError) Unwrap() error { return e.Err }

// EventWatcher is a [Runtime] with an event stream.
type EventWatcher interface {
	// WatchEvents opens the stream, calls opened, and then calls hint for each event
	// until the stream ends, which is always an error. Both functions are called one
	// at a time and return soon, whatever the rest of the pipeline does, so that the
	// runtime never waits.
	WatchEvents(ctx context.Context, opened func(), hint func(Hint)) error
}

// Hint is a CRI event as the pipeline reads it: something happened to a pod. It is
// only a hint: a later observation overrules it.
type Hint struct {
	UID PodUID
	// At is when the runtime made the event; zero if unknown. It orders the events
	// of a pod: an event that is not later than what is known of the pod is not used.
	At time.Time
	// AsOf is a time before the statuses were gathered: whatever happened to the
	// sandbox earlier is in them. Zero means At.
	AsOf time.Time
	// Container is the container or sandbox that the event is about, Sandbox
	// the sandbox it belongs to or is.
	Container ContainerID
	Sandbox   ContainerID
	// State is the container's state according to the event. Removed means that it
	// is gone.
	State   State
	Removed bool
	// Pod is the sandbox with its containers as of the event, without what was
	// removed; Status is the same in full. Both are nil if the event did not carry
	// everything. They do not have other sandboxes of the pod. A Pod with another
	// UID, or a nil container in either, makes both nil.
	Pod    *Pod
	Status *PodStatus
}
