package fleet

import (
	"context"
	"errors"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Source is where a publisher gets the events of its node; see [FromPipeline] and
// [FromClient].
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

// FromPipeline returns a source for a pipeline in this process.
func FromPipeline(p *pipeline.Pipeline) Source {
	return pipelineSource{exporter.Pipeline{Pipe: p, Name: subscriber}}
}

type pipelineSource struct{ exporter.Pipeline }

func (s pipelineSource) Status(_ context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	return s.Pipe.Cache().Get(uid)
}

// FromClient returns a source for a daemon on this node.
func FromClient(c *client.Client) Source {
	return clientSource{exporter.Client{Client: c, Name: subscriber}}
}

type clientSource struct{ exporter.Client }

func (s clientSource) Status(ctx context.Context, uid pleg.PodUID) (*pleg.PodStatus, error) {
	status, err := s.Client.Client.PodStatus(ctx, uid, time.Time{})
	if err != nil && !errors.As(err, new(*client.InspectionError)) {
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
