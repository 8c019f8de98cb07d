package pleg

import "time"

// SubscribeOptions configure one subscriber, in the process of the pipeline or in another
// one. The zero value asks for all events from now on, except those that come only on
// request.
type SubscribeOptions struct {
	// Name identifies the subscriber in logs and metrics; printable UTF-8. If empty, one
	// is generated.
	Name string
	// Buffer is the number of events that may wait to be read. Memory for them is
	// allocated at once, about 200 bytes each. If zero, 1000, as in the kubelet; in another
	// process the default of the server.
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
	After Position
	// Since asks for the events of this time and later instead, as far as the pipeline still
	// has them. The zero value asks for nothing.
	Since time.Time
	// Bookmarks asks for a mark after each list whose changes are delivered, except
	// those of pods whose inspection fails or hangs. In another process a subscription from
	// now on then begins with a Synced, so that it has a position before its first event.
	Bookmarks bool

	// Statuses asks for Event.Status: in this process a pointer, over the socket a few
	// kilobytes in each event.
	Statuses bool

	Filter Filter

	// Disconnected, if not nil, is called after each attempt to connect that failed and
	// each connection that broke, with the time until the next attempt, by the goroutine
	// that ranges over the events. It is for another process: the pipeline does not call it.
	Disconnected func(err error, retryIn time.Duration)
}
