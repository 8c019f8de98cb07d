package pleg

import (
	"context"
	"fmt"
)

// Runtime is what the pipeline needs of a container runtime. Package cri implements
// it for every CRI endpoint; an embedder may have its own.
//
// Both methods must be safe for concurrent use: ListPods runs beside any number of PodStatus calls
// of different pods. A call that has not returned a second after the end of its ctx has failed, and
// until it returns no other of that method and pod begins. A panic or a runtime.Goexit is an error
// of that call. All text is UTF-8: plegtest.CheckRuntime tests all this.
type Runtime interface {
	// ListPods returns every pod with all its containers and sandboxes in all
	// states. No two pods have one UID, and no two containers or sandboxes one id. For a pod
	// that did not change since the last call it may return the same pointer, which saves
	// the comparison. After an error the pipeline keeps what it knew: an error is never an
	// empty node.
	ListPods(ctx context.Context) ([]*Pod, error)

	// PodStatus inspects one pod by the ids in it. Ids that the runtime no longer
	// knows are left out of the status and are not an error. last is the pod's last
	// good status, or nil if the runtime must be asked for everything. What cannot have
	// changed since may be taken from it: what had exited, and, if the runtime keeps the
	// addresses of a ready sandbox, a sandbox that is listed as ready, was ready, and had its
	// addresses.
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

// Addressed is a [Runtime] that has an address, so that whoever asks for the status of the
// pipeline can ask the runtime too.
type Addressed interface {
	// Endpoint returns the address, such as unix:///run/containerd/containerd.sock. It never changes.
	Endpoint() string
}

// Prober is a [Runtime] with a cheap call that shows that it answers. It is made every two
// seconds while no list of all pods is due for longer.
type Prober interface {
	// Probe returns an error if the runtime does not answer before ctx ends.
	Probe(ctx context.Context) error
}

// ProcessReporter is a [Runtime] that knows its process, so that the status of the pipeline can
// say why it does not answer.
type ProcessReporter interface {
	// Process returns the process of the runtime, nil if it is not known. It does not block.
	Process() *Process
}

// ShimReporter is a [Runtime] that knows the processes that watch containers, so that the status
// of the pipeline has what the runtime itself does not learn.
type ShimReporter interface {
	// Stuck returns the pods whose shim does not run, the longest first. It does not block.
	Stuck() []Stuck
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

// Hint is a CRI event: something happened to a container or a sandbox. It is a reason to list
// the pod, and never data about it; a container that no list shows is told by what its hints
// say of it.
type Hint struct {
	// UID is empty if the event does not say which pod it is about.
	UID PodUID
	// Container is the container or sandbox that the event is about, Sandbox the sandbox it
	// belongs to. Both are the same if the event is about a sandbox; either may be empty.
	Container, Sandbox ContainerID
	// State is the container's state according to the event. Removed means that it is gone.
	State   State
	Removed bool
	// Name and Attempt are the container's, PodName and PodNamespace its pod's. They may be
	// empty.
	Name                  string
	Attempt               uint32
	PodName, PodNamespace string
	// Status is the status of a container that has exited, nil if the event has none. It is
	// final.
	Status *ContainerStatus
}
