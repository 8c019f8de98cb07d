package pleg

import (
	"context"
	"fmt"
)

// Runtime contains the calls of a container runtime that the pipeline needs. Package cri implements
// it for every CRI endpoint; an embedder may bring its own.
//
// Both methods must be safe for concurrent use: ListPods runs beside any number of PodStatus calls
// of different pods. Their contexts have deadlines. A call that has not returned a second after its
// ctx has ended counts as failed, and until it returns, no other call of this method for this pod
// begins. A panic or a runtime.Goexit counts as an error of the call.
//
// The result of a call must not change later, and all text is UTF-8. plegtest.CheckRuntime tests a
// runtime.
type Runtime interface {
	// ListPods returns every pod with all its containers and sandboxes in all states. No two pods
	// share a UID, and no two containers or sandboxes an id. For a pod that did not
	// change since the last call, ListPods may return the same pointer, which saves the
	// comparison. After an error the pipeline keeps its last state.
	ListPods(ctx context.Context) ([]*Pod, error)

	// PodStatus returns the status of each container and sandbox in pod. It leaves out those that
	// the runtime no longer knows, without an error. The pipeline sets ObservedAt.
	//
	// last is the pod's last good status. PodStatus may take parts from it that cannot have changed: a
	// container that is listed in the same state as in last, and a sandbox that is as ready as in last,
	// with its addresses if it is ready. If last is nil, the runtime must be asked for everything.
	PodStatus(ctx context.Context, pod *Pod, last *PodStatus) (*PodStatus, error)
}

// PodLister is a [Runtime] that can list one pod. Otherwise the pipeline lists all pods, even if it
// needs a single pod.
type PodLister interface {
	// ListPod returns the pod as ListPods would, or nil and no error if the pod is gone. It runs
	// beside ListPods, PodStatus, and calls of ListPod for other pods.
	ListPod(ctx context.Context, uid PodUID) (*Pod, error)
}

// Prober is a [Runtime] with a cheap call that shows whether the runtime answers. The pipeline
// makes this call after two seconds without a list of all pods.
type Prober interface {
	// Probe returns an error if the runtime does not answer before ctx ends.
	Probe(ctx context.Context) error
}

// Reporter is a [Runtime] that knows more about itself, for the status of the pipeline.
type Reporter interface {
	// Report does not block.
	Report() Report
}

// Report contains the facts that a runtime knows about itself. Unknown fields are zero.
type Report struct {
	// Endpoint is the address, such as unix:///run/containerd/containerd.sock: whoever asks for the
	// status of the pipeline can ask the runtime too.
	Endpoint string
	// Degraded names the parts that work only by a fallback.
	Degraded error
	// Troubles are the other troubles of the runtime and its node.
	Troubles []Trouble
	// Details are for the program of this module: leave them nil.
	Details any
	// Calls are the calls that the methods of the Runtime wait for, the oldest first.
	Calls []Call
}

// CallError is an error of one call to the runtime. A Runtime may wrap it in the error of
// PodStatus, so that the status of the pipeline can still name the call after it has ended.
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
	// WatchEvents opens the stream, calls opened, and then calls hint for each event until ctx or
	// the stream ends. It always returns an error, which wraps [ErrNoEvents] if the runtime sends no events.
	// WatchEvents is then called again ten seconds later. It must not call the two functions at the same time. They
	// always return soon, so that the runtime never waits.
	WatchEvents(ctx context.Context, opened func(), hint func(Hint)) error
}

// Hint is a CRI event: something happened to a container or a sandbox. It is a reason to list
// the pod, and never data about it, except for a container that no list shows: the events of this
// container come from its hints.
type Hint struct {
	// UID is the pod. If the event does not say which pod it is about, UID is empty, and all pods
	// are listed.
	UID PodUID
	// Container is the container or sandbox that the event is about, Sandbox the sandbox that the
	// container belongs to. For a sandbox both are the same. Either may be empty.
	Container, Sandbox ContainerID
	// State is the container's state according to the event. Removed means that the container is
	// gone.
	State   State
	Removed bool
	// Name and Attempt are the container's, PodName and PodNamespace the pod's. They may be
	// empty.
	Name                  string
	Attempt               uint32
	PodName, PodNamespace string
	// Status is the final status of a container that has exited; nil if the event contains none.
	Status *ContainerStatus
	// Others are the final statuses of the pod's other containers that have exited, as far as the event
	// contains them. A container may be removed before the runtime gathers the statuses for its own
	// event: then only the event of another container contains its exit code.
	Others []*ContainerStatus
}
