package otlp

import (
	"context"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Source is where an exporter gets the events of its node; see [FromPipeline] and
// [FromClient].
type Source interface {
	// Follow sends every event after a position, which is not nil, until ctx ends, network
	// events included. It returns nil once there will be no more events.
	Follow(ctx context.Context, after *pleg.Position, events chan<- pleg.Event) error
}

// subscriber is the name of exporters in the metrics of a pipeline.
const subscriber = "otlp"

// FromPipeline returns a source for a pipeline in this process.
func FromPipeline(p *pipeline.Pipeline) Source { return exporter.Pipeline{Pipe: p, Name: subscriber} }

// FromClient returns a source for a daemon on this node.
func FromClient(c *client.Client) Source { return exporter.Client{Client: c, Name: subscriber} }
