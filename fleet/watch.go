package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// WatchOptions configure one watch. Cluster is required. Otherwise the zero value
// requests all events from now on, except those that come only on request.
type WatchOptions struct {
	// Cluster selects the cluster, Nodes nodes of it. Without nodes, all, also those
	// that come later.
	Cluster string
	Nodes   []string

	// Replay requests the present state of all nodes first, and then a Synced.
	Replay bool
	// After requests the events after this position first, and then a Synced. If the
	// stream no longer has them, the watch gets a Gap and then a replay.
	After *Position
	// Since requests the events that the server has stored since this time first, as far as it still
	// has them, and then a Synced.
	Since time.Time
	// Bookmarks requests a mark about every ten seconds while the watch has everything
	// that the stream has: a watch with few events gets new positions too. The first one
	// comes at once, unless the watch begins with earlier events or a replay.
	Bookmarks bool

	Filter pleg.Filter

	// Disconnected, if not nil, is called after each attempt that failed and each
	// connection that broke, with the time until the next attempt. The goroutine that
	// ranges calls it.
	Disconnected func(err error, retryIn time.Duration)
	// Connected, if not nil, is called when a connection is made. The goroutine that ranges calls it.
	Connected func()
	// Unreadable, if not nil, is called for each message that cannot be read and is
	// passed over: it was not written by an agent of this project, or by a newer one. If an
	// agent's events are missing for it, a Gap of the node follows. The goroutine that ranges
	// calls it.
	Unreadable func(error)
}

// Event is an event of one node, or a mark.
type Event struct {
	pleg.Event

	// Node is the node of the pod. A Gap has it unless it is about all nodes; the
	// Synced that ends the replay of one node has it too.
	Node string `json:"node,omitempty"`
	// At is the position after which a watch can resume. A Gap and the events of a
	// replay have none; the Synced that follows them has one.
	At Position `json:"at,omitempty"`
}

// Watch ranges over the events of a cluster until ctx ends. The contract is that of a
// subscription, for each node: events of a pod arrive in order and none comes twice. What
// the stream no longer has is announced by a Gap, and the present state follows: of one
// node if the Gap names it, otherwise of all. The Synced after it means that the replay is
// complete: the watch has everything that was published before the state was read.
//
// Lost connections and restarts of the server are retried. The range ends with an error
// only if no attempt can succeed, such as for a bad option.
func Watch(ctx context.Context, js jetstream.JetStream, o WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		filter, err := o.complete()
		if err != nil {
			err = option.Invalid(err)
		} else {
			w := watch{js: js, o: o, filter: filter, yield: yield, subjects: subjectsOf(o.Cluster, o.Nodes)}
			err = o.retry(ctx, js, &backoff.Backoff{Min: DefaultMinBackoff, Max: DefaultMaxBackoff}, w.connect)
		}
		if err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(Event{}, fmt.Errorf("watch fleet: %w", err))
		}
	}
}

var errStopped = errors.New("the loop over the range has ended")

func (o *WatchOptions) complete() (filter.Filter, error) {
	err := checkName("WatchOptions.Cluster", o.Cluster)
	for _, node := range o.Nodes {
		err = cmp.Or(err, checkName("WatchOptions.Nodes", node))
	}
	if err != nil {
		return filter.Filter{}, err
	}
	if o.Replay && (o.After != nil || !o.Since.IsZero()) || o.After != nil && !o.Since.IsZero() {
		return filter.Filter{}, errors.New("WatchOptions.Replay, After and Since exclude each other: a watch that resumes gets a replay if necessary")
	}
	if o.After != nil && *o.After != "" {
		if _, err := ParsePosition(string(*o.After)); err != nil {
			return filter.Filter{}, fmt.Errorf("WatchOptions.After: %w", err)
		}
	}
	f, err := filter.New(o.Filter)
	if err != nil {
		return f, fmt.Errorf("WatchOptions.Filter: %w", err)
	}
	return f, nil
}

// watch is owned by the goroutine that ranges.
type watch struct {
	*store // nil before the first connection

	js       jetstream.JetStream
	o        WatchOptions
	filter   filter.Filter
	yield    func(Event, error) bool
	subjects []string

	nodes map[string]*progress // nil before the first connection
	// whole is true if every node that published before is in nodes.
	whole bool
	// at is how far the watch has come: it has every message up to there.
	at place
	// state is the sequence number up to which the messages are the present state, and not only
	// what has happened. mark is the one that the watch must have for the Synced it owes; owes is
	// false if it owes none.
	state, mark uint64
	owes        bool
	// withheld is the sequence number below which there are no positions: a replay may have
	// included what is between.
	withheld uint64
	// skipped is the first sequence number that the watch did not get and that may not be
	// that of another node; 0 if none.
	skipped uint64
	// checked is when a check found that the watch has everything; zero if a message came since.
	checked time.Time
	// received counts the messages of the consumer: it does not send again what is lost under way.
	received uint64
	// broken is true from a Gap until the state after it has been delivered. If the
	// connection breaks meanwhile, the next one begins with a Gap and a replay.
	broken bool
}

// checkPeriod is the time between two checks that the stream still has what the watch does not have
// yet. There are none while messages come without a number missing, and few while nothing comes:
// what the stream has of others makes the position of the watch old.
const (
	checkPeriod = 10 * time.Second
	restPeriod  = 10 * time.Minute
)

// openTimeout bounds the requests until a watch receives messages.
const openTimeout = 10 * time.Second

// connect delivers events until an error occurs.
func (w *watch) connect(ctx context.Context) error {
	ctx, stop := untilReconnected(ctx, w.js.Conn())
	defer stop()
	err := w.follow(ctx)
	return cmp.Or(context.Cause(ctx), err)
}

func (w *watch) follow(ctx context.Context) (err error) {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if w.store, err = openStream(opening, w.js, w.o.Cluster, nil); err != nil {
		return err
	}
	config, err := w.begin(opening)
	if err != nil {
		return err
	}
	opening, cancel = context.WithTimeout(ctx, searchTimeout) // delivering a Gap may have taken long
	defer cancel()
	messages, info, err := w.consume(opening, config)
	if err != nil {
		return err
	}
	defer messages.Stop()
	w.checked, w.received = time.Time{}, 0
	if w.o.Connected != nil {
		w.o.Connected()
	}
	if err := w.began(opening, config.DeliverPolicy, info); err != nil {
		return err
	}
	for {
		quiet, err := w.receive(ctx, messages)
		if err == nil && (w.o.Bookmarks || w.owes || w.skipped > 0 || quiet && time.Since(w.checked) > restPeriod) {
			err = w.check(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// receive delivers messages until it may be time for a check, and reports whether none came.
func (w *watch) receive(ctx context.Context, messages jetstream.MessagesContext) (quiet bool, err error) {
	until, cancel := context.WithTimeout(ctx, w.period())
	defer cancel()
	for quiet = true; ; quiet = false {
		m, err := messages.Next(jetstream.NextContext(until))
		if until.Err() != nil && ctx.Err() == nil && m == nil {
			return quiet, nil
		}
		if err != nil {
			return false, fmt.Errorf("receive messages: %w", explain(w.js.Conn(), err))
		}
		w.checked = time.Time{}
		if err := w.handle(ctx, m); err != nil {
			return false, err
		}
		if until.Err() != nil {
			return false, context.Cause(ctx)
		}
	}
}

// period is the time until the next check: short while a message that was removed meanwhile may hold up
// a Synced.
func (w *watch) period() time.Duration {
	if w.owes {
		return quietTime
	}
	return checkPeriod
}

func (w *watch) sendBookmark() error {
	return w.send(Event{Event: pleg.Event{Type: pleg.Bookmark, ObservedAt: time.Now()}, At: w.at.position()})
}

func (w *watch) send(ev Event) error {
	if !w.yield(ev, nil) {
		return errStopped
	}
	return nil
}
