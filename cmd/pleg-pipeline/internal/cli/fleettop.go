package cli

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/top"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// fleetSource is a cluster as the view uses it.
type fleetSource struct {
	js     jetstream.JetStream
	states *fleet.States
	flags  *fleetFlags
}

// Events implements [top.Source].
func (s fleetSource) Events(ctx context.Context, disconnected func(error)) iter.Seq2[top.Event, error] {
	o := fleet.WatchOptions{
		Cluster: s.flags.cluster, Nodes: s.flags.nodes, Replay: true,
		Disconnected: func(err error, _ time.Duration) { disconnected(err) },
	}
	return func(yield func(top.Event, error) bool) {
		for ev, err := range fleet.Watch(ctx, s.js, o) {
			if !yield(top.Event{Event: ev.Event, Node: ev.Node}, err) {
				return
			}
		}
	}
}

// Status implements [top.Source]: a cluster has none.
func (s fleetSource) Status(context.Context) (pleg.Status, error) { return pleg.Status{}, nil }

// Pods implements [top.Source].
func (s fleetSource) Pods(ctx context.Context) ([]view.Pod, error) {
	return fleetPods(ctx, s.states, s.flags.nodes, nil)
}

// Nodes implements [top.Cluster].
func (s fleetSource) Nodes(ctx context.Context) (top.Nodes, error) {
	all, err := s.states.Nodes(ctx)
	var nodes top.Nodes
	for _, n := range all {
		if len(s.flags.nodes) > 0 && !slices.Contains(s.flags.nodes, n.Name) {
			continue
		}
		nodes.All++
		if n.Agent == "" {
			nodes.Silent = append(nodes.Silent, n.Name)
		}
	}
	return nodes, err
}
