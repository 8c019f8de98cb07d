package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Source is where a publisher gets the events of its node; see [From].
type Source interface {
	// Follow sends every event after a position, or the present state first if after
	// is nil, until ctx ends. It asks for bookmarks and network events. It returns nil
	// once there will be no more events.
	Follow(ctx context.Context, after *pleg.Position, events chan<- pleg.Event) error
	// Status returns the result of the last inspection of a pod. It is at least as
	// new as every event that Follow has sent.
	Status(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error)
}

// subscriber is the name of publishers in the metrics of a pipeline.
const subscriber = "fleet"

// From returns a source for the pipeline of this process or for the daemon of this node.
func From(p node.Pipeline) Source { return source{exporter.Source{Pipeline: p, Name: subscriber}} }

type source struct{ exporter.Source }

func (s source) Status(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	status, err := s.PodStatus(ctx, uid, time.Time{})
	switch {
	case errors.Is(err, pleg.ErrUnknownPod):
		return &pleg.PodStatus{UID: uid}, nil
	case err != nil && !errors.As(err, new(*pleg.InspectionError)):
		return nil, &StatusError{err}
	}
	return status, err
}

// StatusError is the error of [Source.Status] if the source could not be asked. Any other
// error is that of the last inspection, which is published.
type StatusError struct{ Err error }

// Error implements error.
func (e *StatusError) Error() string { return "read pod status: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StatusError) Unwrap() error { return e.Err }
