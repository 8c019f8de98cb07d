package pleg

import (
	"context"
	"errors"
	"time"
)

// Runtime is what the pipeline needs of a container runtime. Package cri
// implements it for every CRI endpoint; an embedder may bring its own.
//
// Both methods must return soon after ctx ends, and must be safe for
// concurrent use: ListPods runs beside any number of PodStatus calls of
// different pods. A panic in either is contained: it counts as an error.
type Runtime interface {
	// ListPods returns every pod with all its containers and sandboxes in all
	// states. A pod that did not change since the last call may be the same
	// pointer again, which spares the comparison. On an error the pipeline
	// keeps what it knew: an error is never an empty node.
	ListPods(ctx context.Context) ([]*Pod, error)

	// PodStatus inspects one pod by the ids in it. Ids that the runtime no
	// longer knows are left out of the status and are not an error. last is
	// the pod's last good status, or nil: the status in it of a container that
	// has exited is final and may be returned again without asking.
	PodStatus(ctx context.Context, pod *Pod, last *PodStatus) (*PodStatus, error)
}

// PodLister is a [Runtime] that can list one pod. With it a request for a
// relist of one pod costs no list of all.
type PodLister interface {
	// ListPod returns the pod as ListPods would, or nil if the runtime shows
	// that it is gone. It is called beside ListPods and PodStatus.
	ListPod(ctx context.Context, uid PodUID) (*Pod, error)
}

// Degraded is a [Runtime] that can tell that its lists work in a roundabout way.
type Degraded interface {
	// Degraded returns what is wrong, or nil. It does not block.
	Degraded() error
}

// ErrUnavailable is wrapped by the error of a [Runtime] that could not be reached,
// or is not ready to serve yet. To ask it again costs next to nothing, so that
// ListPods is called again after a short time rather than a relist period.
var ErrUnavailable = errors.New("the runtime is not available")

// ErrNoEvents is wrapped by the error of [EventWatcher] if the runtime has no
// event stream, or has it switched off.
var ErrNoEvents = errors.New("the runtime offers no container events")

// EventWatcher is a [Runtime] with a stream of container events.
type EventWatcher interface {
	// WatchEvents opens the stream, calls opened, and then hint for each event
	// until the stream ends, which is always an error. Both are called by the
	// goroutine that called WatchEvents; they return soon, whatever the rest
	// of the pipeline does, so that the runtime never waits.
	WatchEvents(ctx context.Context, opened func(), hint func(Hint)) error
}

// Hint is a container event: that something happened to a pod, and what the
// runtime said of it. It is never taken for more than that: an observation made
// later overrules it.
type Hint struct {
	UID PodUID
	// At is when the runtime made the event; zero if it did not say. It orders
	// the events of a pod: one that is no later than what is known of the pod
	// is not used.
	At time.Time
	// Container is the container or sandbox that the event is about, Sandbox
	// the sandbox it belongs to or is.
	Container ContainerID
	Sandbox   ContainerID
	// State is what the event says of the container; if Removed, it is gone.
	State   State
	Removed bool
	// Pod is the sandbox with its containers as of the event, without what was
	// removed, and Status the same in full; both are nil if the event did not
	// carry all of it. Other sandboxes of the pod are not in them. A Pod that is
	// not of UID, and a nil in either, count as nil.
	Pod    *Pod
	Status *PodStatus
}
