package otlp

import (
	"context"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Source is where an exporter gets the events of its node; see [From].
type Source interface {
	// Follow sends every event after a position, which is not nil, until ctx ends, network
	// events included. It returns nil once there will be no more events.
	Follow(ctx context.Context, after *pleg.Position, events chan<- pleg.Event) error
}

// subscriber is the name of exporters in the metrics of a pipeline.
const subscriber = "otlp"

// From returns a source for the pipeline of this process or for the daemon of this node.
func From(p node.Pipeline) Source { return exporter.Source{Pipeline: p, Name: subscriber} }
