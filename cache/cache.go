// Package cache contains the pods that a pipeline knows: Pipeline.Cache is a [Reader].
package cache

import (
	"context"
	"errors"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Reader reads the cache of a pipeline. Its methods are safe for concurrent use. Their results are
// read-only. Only GetNewerThan waits. It corresponds to the kubelet's kubecontainer.ROCache.
type Reader interface {
	// Get returns the newest status of the pod. If the last inspection failed, the status is nil
	// and the error a [*pleg.InspectionError]. For a pod that is gone or unknown, the error is
	// [pleg.ErrUnknownPod], or [pleg.ErrNotSynced] before the first list of all pods is committed.
	Get(uid pleg.PodUID) (*pleg.PodStatus, error)
	// GetNewerThan blocks until the cache contains the answer of a list of the pod, or of all pods,
	// that began after t, and then returns the result of Get. If the list shows a change, the cache
	// contains the answer once the pod has been inspected, successfully or not. GetNewerThan returns
	// the cause of ctx if ctx ends first, and [pleg.ErrStopped] if it would wait after Run has
	// returned.
	GetNewerThan(ctx context.Context, uid pleg.PodUID, t time.Time) (*pleg.PodStatus, error)
	// GetRemoved returns the final status of a container that was removed within the last minute;
	// nil if there was none, or if neither an inspection nor an event showed its end. It may also
	// return the status of an ended container that is not removed yet.
	GetRemoved(id pleg.ContainerID) *pleg.ContainerStatus
	// List returns the entry of every pod that is not gone, sorted by UID. A pod whose first
	// inspection has not ended is included.
	List() []Entry
	// Entry returns the entry of one pod; false if the pod is gone or unknown.
	Entry(uid pleg.PodUID) (Entry, bool)
	// Pending returns the pods whose change, shown by a list of all pods, is not inspected yet, the
	// longest wait first.
	Pending() []Pending
}

// ErrNotInspected is wrapped by Entry.Err of a pod whose first inspection has not ended yet.
var ErrNotInspected = errors.New("the first inspection has not ended yet")

// Entry is the content of the cache about one pod.
type Entry struct {
	UID pleg.PodUID
	// Status is the result of the last inspection; nil if it failed, or if no inspection has ended
	// yet. Err is nil if Status is not. Otherwise it is the error of the last inspection, or
	// [ErrNotInspected]. A client of a daemon gets it in a [*pleg.InspectionError].
	Status *pleg.PodStatus
	Err    error
	// CurrentAsOf is a time at which Status was true. If the last inspection failed, it is the time
	// before the list that led to it; if no inspection has ended yet, it is zero.
	CurrentAsOf time.Time
	// Last is the status of the last inspection that succeeded; nil if none did. LastAsOf is the
	// latest time at which Last is known to have been true. If Err is nil, Last is Status.
	Last     *pleg.PodStatus
	LastAsOf time.Time
	// Listed is the pod in the newest list of all pods, if that shows a change that has not been
	// inspected successfully; otherwise nil.
	Listed *pleg.Pod
}

// Pending is a pod whose change, shown by a list of all pods, is not inspected yet.
type Pending struct {
	UID pleg.PodUID
	// Status is the result of the last inspection; nil if it failed, or if none has ended yet.
	Status *pleg.PodStatus
	// Err is the error of the last inspection; nil if it succeeded, or if none has ended yet.
	Err error
	// Pod is the pod in the newest list that shows it.
	Pod *pleg.Pod
	// Since is the time before the list that first showed a change. Each later list showed a
	// change that was not inspected yet.
	Since time.Time
}
