package pleg

import "errors"

var (
	// ErrInvalidOption is wrapped by every error about a bad option or a bad query. The
	// error names the field. Over the socket its gRPC code is InvalidArgument.
	ErrInvalidOption = errors.New("invalid option")
	// ErrUnknownPod is wrapped by every error about a pod that is gone, or whose first inspection
	// has not ended yet.
	ErrUnknownPod = errors.New("the pod is unknown or gone")
	// ErrNotSynced is wrapped by the error of a call that asks about pods before the first list of
	// all pods is committed: the pods may exist.
	ErrNotSynced = errors.New("the first list of all pods is not committed yet")
	// ErrNoDaemon is wrapped by the error of a client whose daemon is away: it cannot be reached,
	// does not answer, or is about to end. The call can be made again later. A pipeline in this
	// process never returns it.
	ErrNoDaemon = errors.New("the daemon is not available")
	// ErrStopped is wrapped by the error of a call that would wait for a pipeline whose Run has
	// returned. Only a pipeline in this process returns it.
	ErrStopped = errors.New("the pipeline has stopped")
	// ErrClosed is returned by Next of a subscription that has been closed.
	ErrClosed = errors.New("the subscription is closed")
	// ErrTwoReaders is returned by Next if another reader reads the subscription at the same time:
	// another call of Next, or the channel of Events.
	ErrTwoReaders = errors.New("the subscription has another reader")
	// ErrUnavailable is wrapped by the error of a [Runtime] that cannot be reached or is
	// not ready.
	ErrUnavailable = errors.New("the runtime is not available")
	// ErrListTooLarge is wrapped by Degraded of a [Report] while a list of the runtime is too large
	// for one answer.
	ErrListTooLarge = errors.New("a list is too large, so pods are listed in portions")
	// ErrNoEvents is wrapped by the error of an [EventWatcher] if the runtime has no
	// event stream or has disabled it.
	ErrNoEvents = errors.New("the runtime offers no container events")
)

// InspectionError says that the last inspection of a pod failed, and wraps the error of the
// inspection. From a daemon, Err is only the text of that error.
type InspectionError struct{ Err error }

// Error implements error.
func (e *InspectionError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *InspectionError) Unwrap() error { return e.Err }
