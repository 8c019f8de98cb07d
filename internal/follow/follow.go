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

// Subscription returns the options of a subscription to every event after a position, or to
// the present state first if after is nil.
func (o Options) Subscription(after *pleg.Position) pipeline.SubscribeOptions {
	s := pipeline.SubscribeOptions{Name: o.Name, Replay: after == nil, Bookmarks: o.Bookmarks, NetworkEvents: true}
	if after != nil {
		s.After = *after
	}
	return s
}

// Subscribed sends the events of a subscription until ctx ends. err is the error of
// subscribing. It returns nil once there will be no more events.
func Subscribed(ctx context.Context, sub *pipeline.Subscription, err error, events chan<- pleg.Event) error {
	if errors.Is(err, pleg.ErrStopped) {
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

// Client subscribes to the daemon that c connects to, and sends the events until ctx ends.
func Client(ctx context.Context, c *client.Client, o Options, after *pleg.Position, events chan<- pleg.Event) error {
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
