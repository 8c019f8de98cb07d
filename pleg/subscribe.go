package pleg

import (
	"context"
	"iter"
	"time"
)

// SubscribeOptions configure one subscriber, in the process of the pipeline or in another
// process. The zero value asks for all events of the default types from now on; see [Filter].
type SubscribeOptions struct {
	// Name identifies the subscriber in logs and metrics; printable UTF-8. If empty, a name
	// is generated.
	Name string

	// Replay asks for the present state first: for each container and sandbox the last event about
	// its state, marked as replayed, in the order of the sequence numbers, and then one Synced.
	// Before the first list is committed, the events of this list are the replay. With After, the
	// replay contains only states that have not changed since, so that no event comes twice.
	Replay bool
	// After asks for the events after this position first, and then one Synced. If the log no
	// longer contains these events, a Gap comes first and a replay follows. If zero, events from
	// now on. A position without an epoch is an error.
	After Position
	// Since asks for the events of this time and later first, and then one Synced. If the log does
	// not reach back to this time, its events come without a Gap. The time of a start or end is
	// StartedAt or FinishedAt if set. The time of any other event is ObservedAt. It is an error with
	// After. If zero, events from now on.
	Since time.Time
	// Bookmarks asks for a Bookmark after each list whose changes are delivered, except changes
	// of pods whose inspection fails or hangs. In another process, a subscription from now on also
	// begins with a Synced, so that there is a position before its first event.
	Bookmarks bool

	// Statuses asks for Event.Status: in this process a pointer, over the socket a few
	// kilobytes in each event.
	Statuses bool

	// Filter selects the events.
	Filter Filter
}

// Subscription is a position in the log of a pipeline, in this process or in another. Events of one
// pod arrive in the order in which its states were seen. If the log has moved past the position, the
// reader gets a Gap with the number of missed events, the present state as replayed events, and
// Synced.
//
// One goroutine at a time may read, always by the same one of Next, All and Events: a second reader
// gets [ErrTwoReaders], or a closed channel. The other methods are safe for concurrent use.
type Subscription interface {
	// Name returns the subscriber's name.
	Name() string
	// Next blocks until there is an event, and returns it. The error is the cause of ctx if ctx
	// ends first, [ErrClosed] after Close, [ErrStopped] once the pipeline of this process has stopped
	// and everything has been read, and [ErrTwoReaders] if there is another reader. If the pipeline is
	// in a daemon that is away, Next waits until it is back, and returns another error only if no
	// attempt can succeed.
	Next(ctx context.Context) (Event, error)
	// All ranges over the events. The range ends without an error if ctx ends or after Close,
	// otherwise with the error of Next. It does not close the subscription.
	All(ctx context.Context) iter.Seq2[Event, error]
	// Events returns a channel of the events, the same at each call, for a select. Its length says
	// nothing: see Lag. It is closed after Close, and when Next would return an error. If the pipeline stops while events wait,
	// the last event is a Gap that counts them, whereas Next and All return all of them.
	Events() <-chan Event
	// Lag returns how far the reader is behind. If the pipeline is in another process, this is the
	// lag when the last event came.
	Lag() Lag
	// Close ends the subscription, also before the pipeline runs. It does not block and may be
	// called more than once. A reader that does not read to the end must call it.
	Close()
}

// Lag is how far a subscriber is behind.
type Lag struct {
	// Events is the number of published events, of all pods, that the subscriber has not read.
	Events uint64
	// Age is the time since the oldest of these events was published.
	Age time.Duration
}
