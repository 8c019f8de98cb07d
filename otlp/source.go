package otlp

import (
	"context"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/follow"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Source is where an exporter gets the events of its node; see [FromPipeline] and
// [FromClient].
type Source interface {
	// Follow sends every event after a position until ctx ends, network events
	// included. It returns nil once there will be no more events.
	Follow(ctx context.Context, after pleg.Position, events chan<- pleg.Event) error
}

var followOptions = follow.Options{Name: "otlp"}

// FromPipeline returns a source for a pipeline in this process.
func FromPipeline(p *pipeline.Pipeline) Source { return pipelineSource{p} }

type pipelineSource struct{ pipe *pipeline.Pipeline }

func (s pipelineSource) Follow(ctx context.Context, after pleg.Position, events chan<- pleg.Event) error {
	sub, err := s.pipe.Subscribe(followOptions.Subscription(&after))
	return follow.Subscribed(ctx, sub, err, events)
}

// FromClient returns a source for a daemon on this node.
func FromClient(c *client.Client) Source { return clientSource{c} }

type clientSource struct{ client *client.Client }

func (s clientSource) Follow(ctx context.Context, after pleg.Position, events chan<- pleg.Event) error {
	return follow.Client(ctx, s.client, followOptions, &after, events)
}
