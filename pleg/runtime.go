package pleg

import "context"

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
