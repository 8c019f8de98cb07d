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
	// new as every event that Follow has sent. A [pleg.InspectionError] is published; any other
	// error means that the source could not be asked.
	Status(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error)
}

// subscriber is the name of publishers in the metrics of a pipeline.
const subscriber = "fleet"

// From returns a source for the pipeline of this process or for the daemon of this node.
func From(p node.Pipeline) Source { return source{exporter.Source{Pipeline: p, Name: subscriber}} }

type source struct{ exporter.Source }

func (s source) Status(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	status, err := s.PodStatus(ctx, uid, time.Time{})
	if errors.Is(err, pleg.ErrUnknownPod) {
		return &pleg.PodStatus{UID: uid}, nil
	}
	return status, err
}
