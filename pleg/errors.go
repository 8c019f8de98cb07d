package pleg

import "errors"

var (
	// ErrInvalidOption is wrapped by every error about a bad option or a bad query. The
	// error names the field. Over the socket it has the gRPC code InvalidArgument.
	ErrInvalidOption = errors.New("invalid option")
	// ErrUnknownPod is wrapped by every error about a pod that is gone or was never
	// inspected: no event of it has been delivered since.
	ErrUnknownPod = errors.New("the pod is unknown or gone")
	// ErrNotSynced is wrapped by the error of every question about pods that is asked before
	// the first list of all pods is committed: they may exist.
	ErrNotSynced = errors.New("the first list of all pods is not committed yet")
	// ErrNoDaemon is wrapped by the error of a client whose daemon is away: it cannot be reached,
	// does not answer, or is about to end. The call can be made again later. A pipeline in this
	// process never returns it.
	ErrNoDaemon = errors.New("the daemon is not available")
	// ErrStopped is returned by calls that wait for a pipeline that has ended.
	ErrStopped = errors.New("the pipeline has stopped")
	// ErrClosed is returned to the reader of a subscription that has been closed.
	ErrClosed = errors.New("the subscription is closed")
	// ErrUnavailable is wrapped by the error of a [Runtime] that cannot be reached or is
	// not ready.
	ErrUnavailable = errors.New("the runtime is not available")
	// ErrNoEvents is wrapped by the error of an [EventWatcher] if the runtime has no
	// event stream or has disabled it.
	ErrNoEvents = errors.New("the runtime offers no container events")
)

// InspectionError says that the last inspection of a pod failed, and wraps the reason. In a
// list of pods it may also say that the first has not ended yet. Over the socket, Err has
// only the text.
type InspectionError struct{ Err error }

// Error implements error.
func (e *InspectionError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *InspectionError) Unwrap() error { return e.Err }
