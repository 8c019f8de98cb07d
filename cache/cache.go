// Package cache has what a pipeline knows of its pods: Pipeline.Cache is a [Reader].
package cache

import (
	"context"
	"errors"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Reader reads the cache of a pipeline. Its methods are safe for concurrent use, none but
// GetNewerThan waits, and what they return is read-only. It corresponds to the kubelet's
// kubecontainer.ROCache.
type Reader interface {
	// Get returns the newest status of the pod. If the last inspection failed, the error is a
	// [pleg.InspectionError]. For a pod that is gone or unknown, it is [pleg.ErrUnknownPod], or
	// [pleg.ErrNotSynced] before the first list of all pods is committed.
	Get(uid pleg.PodUID) (*pleg.PodStatus, error)
	// GetNewerThan returns the pod's status, as Get does, as soon as an observation of the pod
	// that began after t has been applied. A list that shows the pod unchanged or gone is such
	// an observation; one that shows a change is applied once the pod has been inspected. It
	// returns the cause of ctx if that ends first, and [pleg.ErrStopped] once Run has returned.
	GetNewerThan(ctx context.Context, uid pleg.PodUID, t time.Time) (*pleg.PodStatus, error)
	// GetRemoved returns the final status of a container that was removed within the last
	// minute, or nil. It may have that of one that has ended and is still there. A container
	// whose end nothing told has none.
	GetRemoved(id pleg.ContainerID) *pleg.ContainerStatus
	// List returns what is known of every pod that is not gone, sorted by UID. A pod whose
	// first inspection has not ended is included.
	List() []Entry
	// Entry returns what is known of one pod; false if the pod is gone or unknown.
	Entry(uid pleg.PodUID) (Entry, bool)
	// Pending returns the pods that wait for an inspection since the last list or longer, the
	// longest wait first.
	Pending() []Pending
}

// ErrNotInspected is the error of a pod whose first inspection has not ended yet.
var ErrNotInspected = errors.New("the first inspection has not ended yet")

// Entry is what the cache knows of one pod.
type Entry struct {
	UID pleg.PodUID
	// Status is nil if the last inspection failed, or if there was none. Err then
	// says why; in the second case it is [ErrNotInspected].
	Status *pleg.PodStatus
	Err    error
	// CurrentAsOf is the time of the newest observation that has been applied: Status
	// was true then. It is zero if the pod was never inspected.
	CurrentAsOf time.Time
	// Last is the status of the last inspection that succeeded; nil if none did. It was
	// still true at LastAsOf. If Err is nil, Last is Status.
	Last     *pleg.PodStatus
	LastAsOf time.Time
	// Listed is the pod in the newest listing that showed a change, if that was not
	// inspected successfully yet; otherwise nil.
	Listed *pleg.Pod
}

// Pending is a pod whose change, shown by a listing, is not inspected yet.
type Pending struct {
	UID pleg.PodUID
	// Status is the result of the last inspection; nil if there was none or it failed.
	Status *pleg.PodStatus
	// Err is the error of the last inspection; nil if there was none or it succeeded.
	Err error
	// Pod is the pod in the newest listing; if that shows it gone, in an earlier one.
	Pod *pleg.Pod
	// Since is the time of the listing that first showed a change. All listings after it
	// showed one that was not inspected yet.
	Since time.Time
}
