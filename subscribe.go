package pipeline

import (
	"context"
	"iter"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage/dispatcher"
)

// SubscribeOptions configure one subscriber. The zero value asks for all events
// from now on, except those that come only on request.
type SubscribeOptions struct {
	// Name identifies the subscriber in logs and metrics; printable UTF-8. If empty, one
	// is generated.
	Name string
	// Buffer is the number of events that may wait to be read. Memory for them is
	// allocated at once, about 200 bytes each. If zero, [DefaultBuffer].
	Buffer int

	// Replay asks for the present state first: for each container and sandbox the
	// event that brought it there, marked as replayed, in the order of the sequence
	// numbers, and then one Synced. Before the first list is inspected, its events
	// come as replayed ones, and then Synced. With After, only what has not changed since
	// comes as replayed, then each event since: a subscriber that kept its position but
	// not its state lacks nothing and gets nothing twice.
	Replay bool
	// After asks for the events after this position first, and then one Synced. If
	// they are no longer available, a Gap comes first and a replay follows. The
	// zero value asks for nothing; a number without an epoch is an error.
	After pleg.Position
	// Since asks for the events of this time and later instead, as far as the pipeline still
	// has them. The zero value asks for nothing.
	Since time.Time
	// Bookmarks asks for a mark after each list whose changes are delivered, except
	// those of pods whose inspection fails or hangs.
	Bookmarks bool

	Filter pleg.Filter
}

// Subscribe adds a subscriber, before or while the pipeline runs. It gets every
// event published after Subscribe has returned. Subscribe does not block and is
// safe for concurrent use. It returns an error if an option is bad, and
// [pleg.ErrStopped] once Run has returned.
func (p *Pipeline) Subscribe(o SubscribeOptions) (*Subscription, error) {
	end, err := p.dispatcher.Subscribe(dispatcher.SubscribeOptions(o))
	if err != nil {
		return nil, err
	}
	return &Subscription{end}, nil
}

// Subscription is one subscriber's end of the pipeline.
//
// Events of one pod arrive in the order in which its states were seen, and sequence
// numbers only grow. A subscriber that does not read delays nobody. Once its buffer
// is full, events are discarded until it reads again. It then gets one PodSync for
// each pod with discarded events, with their number in Missed, and after that the
// events that follow. If these are too many pods, it gets a Gap and the present state.
type Subscription struct {
	end *dispatcher.Subscription
}

// Name returns the subscriber's name.
func (s *Subscription) Name() string { return s.end.Name() }

// Events returns the channel on which the events arrive. It is closed soon after
// [Subscription.Close] and when the pipeline ends. Events that wait in it can still
// be read then.
func (s *Subscription) Events() <-chan pleg.Event { return s.end.Events() }

// All ranges over the events until the subscription or ctx ends. It does not
// close the subscription.
func (s *Subscription) All(ctx context.Context) iter.Seq[pleg.Event] {
	return func(yield func(pleg.Event) bool) {
		for {
			select {
			case ev, ok := <-s.Events():
				if !ok || !yield(ev) {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}
}

// Close ends the subscription. It does not block and may be called by any goroutine,
// more than once, and while events are delivered.
func (s *Subscription) Close() { s.end.Close() }
