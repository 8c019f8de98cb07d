// Package follow subscribes to the events of a node, in this process or through its
// daemon, for the packages that send all of them elsewhere.
package follow

import (
	"context"
	"errors"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Options say what to ask for besides all events, those of the network included.
type Options struct {
	// Name is the name of the subscriber in the metrics of the pipeline.
	Name      string
	Bookmarks bool
}

// Pipeline sends every event after a position, or the present state first if after is
// nil, until ctx ends. It returns nil once there will be no more events.
func Pipeline(ctx context.Context, pipe *pipeline.Pipeline, o Options, after *pipeline.Position, events chan<- pleg.Event) error {
	s := pipeline.SubscribeOptions{Name: o.Name, Replay: after == nil, Bookmarks: o.Bookmarks, NetworkEvents: true}
	if after != nil {
		s.After = *after
	}
	sub, err := pipe.Subscribe(s)
	if errors.Is(err, pipeline.ErrStopped) {
		return nil
	}
	if err != nil {
		return err
	}
	defer sub.Close()
	for ev := range sub.All(ctx) {
		select {
		case events <- ev:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Client does what [Pipeline] does, for the daemon that c connects to.
func Client(ctx context.Context, c *client.Client, o Options, after *pipeline.Position, events chan<- pleg.Event) error {
	w := client.WatchOptions{Name: o.Name, Replay: after == nil, After: after, Bookmarks: o.Bookmarks, NetworkEvents: true}
	for ev, err := range c.Watch(ctx, w) {
		if err != nil {
			return err
		}
		select {
		case events <- ev:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// Gather calls accept for an event and then for those that wait behind it, as long as more
// returns true. It does not wait for events. An error of accept ends it.
func Gather(ev pleg.Event, events <-chan pleg.Event, accept func(pleg.Event) error, more func() bool) error {
	for {
		if err := accept(ev); err != nil || !more() {
			return err
		}
		select {
		case next, ok := <-events:
			if !ok {
				return nil
			}
			ev = next
		default:
			return nil
		}
	}
}
