package pleg

import (
	"context"
	"iter"
	"time"
)

// SubscribeOptions configure one subscriber, in the process of the pipeline or in another
// one. The zero value asks for all events from now on, except those that come only on
// request.
type SubscribeOptions struct {
	// Name identifies the subscriber in logs and metrics; printable UTF-8. If empty, one
	// is generated.
	Name string

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
	After Position
	// Since asks for the events of this time and later instead, as far as the pipeline still
	// has them. Starts and ends go by StartedAt and FinishedAt if these are set. The zero
	// value asks for nothing.
	Since time.Time
	// Bookmarks asks for a mark after each list whose changes are delivered, except
	// those of pods whose inspection fails or hangs. In another process a subscription from
	// now on then begins with a Synced, so that it has a position before its first event.
	Bookmarks bool

	// Statuses asks for Event.Status: in this process a pointer, over the socket a few
	// kilobytes in each event.
	Statuses bool

	Filter Filter
}

// Subscription is a place in the log of a pipeline, in this process or in another one. Events
// of one pod arrive in the order in which its states were seen. If the log has moved past the
// place, the reader gets a Gap that counts what it missed, the present state as replayed
// events, and Synced. One goroutine at a time may read, by one of Next, All and Events; the
// other methods are safe for concurrent use.
type Subscription interface {
	// Name returns the subscriber's name.
	Name() string
	// Next returns the next event and waits for it. The error is the cause of ctx if that
	// ends first, [ErrClosed] after Close, and [ErrStopped] once the pipeline of this process
	// has stopped and everything has been read. In another process it waits for the daemon to
	// come back, and returns any other error only if no attempt can succeed.
	Next(ctx context.Context) (Event, error)
	// All ranges over the events. The range ends without an error if ctx ends or after Close,
	// otherwise with that of Next.
	All(ctx context.Context) iter.Seq2[Event, error]
	// Events returns a channel of the events, for a select: a goroutine reads them and waits
	// for the reader of the channel. It is closed after Close and when Next would return
	// an error. If the pipeline stops while events wait, the last one is a Gap that counts
	// them: Next and All read them all.
	Events() <-chan Event
	// Lag returns how far the reader is behind. In another process it is that of the last
	// event that came.
	Lag() Lag
	// Close ends the subscription, also before the pipeline runs. It does not block and may be
	// called more than once.
	Close()
}

// Lag is how far a subscriber is behind.
type Lag struct {
	// Events is the number of published events, of all pods, that it has not read.
	Events uint64
	// Age is the time since the oldest of them was published.
	Age time.Duration
}
