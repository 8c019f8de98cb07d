package fleet_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
)

// Beside pipe.Run, an agent publishes the events of its node.
func ExamplePublisher() {
	publish := func(ctx context.Context, pipe *pipeline.Pipeline, node string) error {
		conn, err := fleet.Connect("nats://nats.example:4222", nil, nats.UserCredentials("agent.creds"))
		if err != nil {
			return err
		}
		defer conn.Close()
		p, err := fleet.NewPublisher(fleet.PublisherOptions{Conn: conn, Source: pipe, Cluster: "prod", Node: node})
		if err != nil {
			return err
		}
		return p.Run(ctx)
	}
	_ = publish
}

// The present state of all nodes, and then their events.
func ExampleWatch() {
	watch := func(ctx context.Context, js jetstream.JetStream) error {
		for ev, err := range fleet.Watch(ctx, js, fleet.WatchOptions{Cluster: "prod", Replay: true}) {
			if err != nil {
				return err // no attempt can succeed
			}
			fmt.Println(ev.Node, ev.Type, ev.PodNamespace, ev.PodName)
		}
		return nil
	}
	_ = watch
}
