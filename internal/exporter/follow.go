package exporter

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/eventtype"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Errors of a session.
var (
	// ErrSourceEnded means that there will be no more events.
	ErrSourceEnded = errors.New("there are no more events")
	errHole        = errors.New("the source left out events")
)

// everything is the filter for all events: a receiver takes a missing number for a lost event.
var everything = pleg.Filter{Types: eventtype.Types(eventtype.ClassNormal, eventtype.ClassOnRequest)}

// follow sends all events that the options ask for until ctx ends, with bookmarks and the types that
// come only on request. It returns nil once there will be no more events.
func follow(ctx context.Context, source node.Pipeline, o pleg.SubscribeOptions, events chan<- pleg.Event) error {
	o.Bookmarks, o.Filter = true, everything
	for ev, err := range source.Watch(ctx, o) {
		if errors.Is(err, pleg.ErrStopped) {
			return nil
		}
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

// buffer is the number of events that wait for the acknowledgement of earlier ones. If it is full,
// the source waits.
const buffer = 256

// Session calls export with the events that the options ask of a source, until one of the two fails. The
// channel is closed if the source has ended.
func Session(ctx context.Context, source node.Pipeline, o pleg.SubscribeOptions, export func(context.Context, <-chan pleg.Event) error) error {
	events := make(chan pleg.Event, buffer)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := follow(ctx, source, o, events); err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		close(events) // only now: an error must not look like the end
		return nil
	})
	group.Go(func() error { return export(ctx, events) })
	return group.Wait()
}

// IsNew reports whether an event follows the last accepted event; false means that it came before.
// An error means that the events between the two are missing.
func IsNew(ev *pleg.Event, last pleg.Position) (bool, error) {
	switch {
	case ev.Epoch == last.Epoch && ev.Seq == last.Seq+1:
		return true, nil
	case ev.Epoch == last.Epoch && ev.Seq <= last.Seq:
		return false, nil
	}
	return false, fmt.Errorf("%w: %s/%d follows %s/%d", errHole, ev.Epoch, ev.Seq, last.Epoch, last.Seq)
}
