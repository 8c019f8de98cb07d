// Package node contains the interface of a node's pipeline, in this process or in a daemon.
//
// A program that takes a [Pipeline] moves from one to the other by the line that makes it:
//
//	p, err := pipeline.New(pipeline.Options{...}) // and p.Run
//	p, err := client.New("/run/pleg-pipeline/pleg.sock", client.Options{})
package node

import (
	"context"
	"iter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Pipeline is the pipeline of a node: a pipeline.Pipeline or a client.Client. Its methods are safe
// for concurrent use, and their results are read-only. New methods may be added in a minor version:
// do not implement it outside tests.
//
// PodStatus, RelistPod, Pods and Lookup return an error that wraps [pleg.ErrNotSynced] until the
// first list of all pods is committed, and [pleg.ErrNoDaemon] if the daemon is away.
type Pipeline interface {
	// Subscribe returns a subscription, which the caller closes. It does not block. The error
	// wraps [pleg.ErrInvalidOption], or [pleg.ErrStopped] if the pipeline of this process has
	// stopped. A subscription to a daemon begins when it is first read.
	Subscribe(o pleg.SubscribeOptions) (pleg.Subscription, error)
	// Watch ranges over the events of a subscription: it subscribes when the range begins and
	// closes when the range ends. An error of Subscribe ends the range.
	Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error]
	// PodStatus returns the newest status of a pod. Unless newerThan is zero, it blocks until
	// the answer of a list that began after newerThan is known, and the pod inspected if it
	// changed, or ctx ends. If the last inspection of the pod failed, the error wraps a
	// [*pleg.InspectionError]; for a pod that is unknown or gone it wraps [pleg.ErrUnknownPod].
	PodStatus(ctx context.Context, uid pleg.PodUID, newerThan time.Time) (*pleg.PodStatus, error)
	// RelistPod requests a list of the pod, and returns the result of PodStatus for the present
	// time: it blocks until the pod is listed, and inspected if it changed. Use it in a program
	// that has changed the pod.
	RelistPod(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error)
	// RequestRelist requests a list of the pod at once, and an inspection if it changed.
	// RequestReinspect requests an inspection at the next list of all pods, whether or not the pod
	// changed; if it did not, a PodSync follows. Neither blocks. Requests for one pod merge. A request to a daemon that is away
	// is lost: when it is back, it lists and inspects every pod.
	RequestRelist(uid pleg.PodUID)
	RequestReinspect(uid pleg.PodUID)
	// Pods returns the entries of the pods with these UIDs, or of all pods if no UID is given,
	// sorted by UID, and a position. A pod that is unknown or gone is left out. Pods does not wait
	// for the runtime.
	//
	// The pods contain the changes of every event up to the position. A subscriber with After that position
	// gets all later events and no replay: together they miss nothing. A pod may be newer than the
	// position: an event can then repeat a change that the list already contains.
	Pods(ctx context.Context, uids ...pleg.PodUID) ([]cache.Entry, pleg.Position, error)
	// Status returns the present work of the pipeline, and the causes of its waits. Only a daemon
	// causes an error. Status does not wait for the runtime.
	Status(ctx context.Context) (pleg.Status, error)
	// Healthy reports whether the pipeline works, and if not, why, as the kubelet's PLEG does. A
	// daemon is asked for at most five seconds; a daemon that is away is not healthy
	// ([pleg.ErrNoDaemon]).
	Healthy() (bool, error)
	// Lookup says which container and pod a container id, a process or a cgroup belongs to. The
	// error wraps [lookup.ErrNoContainer], [lookup.ErrNotYet] or [pleg.ErrInvalidOption].
	Lookup(ctx context.Context, q lookup.Query) (lookup.Container, error)
	// WaitSynced blocks until the first list of all pods is committed: each of its pods was
	// inspected, or its inspection failed or hangs. It returns the cause of ctx if ctx ends
	// first, [pleg.ErrStopped] if the pipeline of this process has stopped, and otherwise an
	// error only if no attempt can succeed.
	WaitSynced(ctx context.Context) error
}
