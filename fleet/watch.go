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

// WatchOptions configure one watch. Cluster is required. Otherwise the zero value requests all
// events from now on, except the types that come only on request.
type WatchOptions struct {
	// Cluster selects the cluster, Nodes nodes of it. Without nodes it follows all, also nodes that
	// come later.
	Cluster string
	Nodes   []string
	// Stream is the name of a mirror of the cluster's stream. If empty, the watch reads the stream itself.
	Stream string

	// Replay requests the present state of all nodes first, and then a Synced.
	Replay bool
	// After requests the events after this position first, and then a Synced. If the stream no
	// longer contains them, the watch gets a Gap and then a replay.
	After *Position
	// Since requests the events first that the server has stored since this time, as far as the
	// stream still contains them, and then a Synced.
	Since time.Time
	// Bookmarks requests a mark about every ten seconds while nothing comes: a watch with few
	// events gets new positions too. The first mark comes at once, unless the watch begins with
	// earlier events or a replay.
	Bookmarks bool

	Filter pleg.Filter

	// Disconnected, if not nil, is called after each attempt that failed and each
	// connection that broke, with the time until the next attempt. The goroutine that
	// ranges calls it.
	Disconnected func(err error, retryIn time.Duration)
	// Unreadable, if not nil, is called for each message that cannot be read and is passed over: it
	// was written by something else than an agent of this project, or by a newer agent. If events
	// of an agent are missing because of that message, a Gap of the node follows. The goroutine
	// that ranges calls it.
	Unreadable func(error)
}

// Event is an event of one node, or a mark. Its texts are parts of one message, a kilobyte or more: a program
// that keeps only some of them clones these.
type Event struct {
	pleg.Event

	// Node is the node of the pod. It is set in a Gap unless that is about all nodes, and in the
	// Synced that ends the replay of one node.
	Node string `json:"node,omitempty"`
	// At is the position after which a watch can resume. It is empty in a Gap and in the events of
	// a replay, and set in the Synced that follows them.
	At Position `json:"at,omitempty"`
}

// Watch ranges over the events of a cluster until ctx ends. For each node, the contract is the same
// as of a subscription: events of a pod arrive in order and none comes twice. If the stream no
// longer contains some events, a Gap comes, then the present state: of one node if the Gap names
// it, otherwise of all. The Synced after it means that the replay is complete: it contains
// everything that was published before the state was read.
//
// Lost connections and restarts of the server are retried. The range ends with an error
// only if no attempt can succeed, such as for a bad option.
func Watch(ctx context.Context, js jetstream.JetStream, o WatchOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		filter, err := o.complete()
		if err != nil {
			err = option.Invalid(err)
		} else {
			w := watch{js: js, o: o, filter: filter, yield: yield, subjects: allOf(o.Cluster, o.Nodes...), nodes: make(map[string]*progress)}
			if o.After != nil {
				w.known, _ = parsePlace(string(*o.After)) // a server that is behind must not cause a Gap
			}
			err = w.run(ctx)
		}
		if err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(Event{}, fmt.Errorf("watch fleet: %w", err))
		}
	}
}

var errStopped = errors.New("the loop over the range has ended")

func (o *WatchOptions) complete() (filter.Filter, error) {
	err := checkName("WatchOptions.Cluster", o.Cluster, maxCluster)
	for _, node := range o.Nodes {
		err = cmp.Or(err, checkName("WatchOptions.Nodes", node, maxName))
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
	patience

	nodes map[string]*progress
	// at is the position up to which the watch has received every message; zero before the first. end is the end
	// of the stream when the connection began.
	at, end place
	// seen are the subjects whose states the watch has received, while it receives the present state of
	// all nodes; otherwise nil.
	seen map[string]struct{}
	// owes is true until the Synced for the state at the beginning.
	owes bool
	// start is the sequence number at which the watch began: the next message of a node that the watch does not
	// know has a greater number.
	start uint64
	// known is the place of the largest sequence number that the watch has seen. behindSince is the time since which
	// the stream lacks that message.
	known       place
	behindSince time.Time
	// withheld is the sequence number below which events carry no position: a replay may have
	// included these events.
	withheld uint64
	// broken is true from a Gap, or the beginning of a replay, until the state after it has been delivered.
	// If the connection breaks meanwhile, the next one begins with a Gap and a replay. These events carry
	// no position: they are not in the order in which they happened.
	broken bool
}

// run connects until the watch ends or no attempt can succeed.
func (w *watch) run(ctx context.Context) error {
	retries := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		began := time.Now()
		connected, stop := untilReconnected(ctx, w.js.Conn())
		err := cmp.Or(w.connect(connected), context.Cause(connected))
		stop()
		if errors.Is(err, errStopped) || w.js.Conn().IsClosed() || ctx.Err() != nil {
			return err
		}
		w.note(w.js.Conn(), err)
		if time.Since(began) > searchTimeout {
			retries.Reset()
		}
		retryIn := retries.Next()
		if w.o.Disconnected != nil {
			w.o.Disconnected(err, retryIn)
		}
		if err := backoff.Wait(ctx, retryIn); err != nil {
			return err
		}
	}
}

// bookmarkPeriod is the time until a quiet watch gets a mark.
const bookmarkPeriod = 10 * time.Second

// connect delivers events until an error occurs.
func (w *watch) connect(ctx context.Context) (err error) {
	if w.store == nil {
		if w.store, err = openStream(ctx, w.js, &w.patience, w.o.Cluster, w.o.Stream, nil); err != nil {
			return err
		}
	}
	config, err := w.begin(ctx)
	if err != nil {
		return err
	}
	messages, err := w.consume(ctx, config)
	if err != nil {
		return err
	}
	defer messages.Stop()
	if w.owes {
		if err := w.catchUp(ctx, messages, config); err != nil {
			return err
		}
	}
	w.unanswered = 0
	looked := time.Now()
	for quiet := time.Now(); err == nil; {
		var m *jetstream.RawStreamMsg
		m, err = messages.next(ctx)
		switch {
		case m != nil:
			quiet, err = time.Now(), w.handle(ctx, m)
		case err == nil && w.o.Bookmarks && time.Since(quiet) > bookmarkPeriod:
			quiet, err = time.Now(), w.sendBookmark(ctx, messages.last)
		}
		if err == nil && time.Since(looked) > lookPeriod {
			looked, err = time.Now(), w.look(ctx)
		}
	}
	return err
}

// catchUp delivers the messages from before the connection, and the Synced.
func (w *watch) catchUp(ctx context.Context, messages *consumer, config jetstream.ConsumerConfig) error {
	if config.OptStartTime != nil && messages.left == 0 { // everything is older
		messages.last = w.end.message
	}
	least := uint64(0)
	if w.seen != nil {
		least, w.seen = w.known.message, make(map[string]struct{}, messages.left)
	}
	until, err := messages.receive(ctx, least, func(m *jetstream.RawStreamMsg) error { return w.handle(ctx, m) })
	if err != nil {
		return err
	}
	if w.at == (place{}) { // nothing was there
		w.at = w.end
	}
	if w.broken {
		w.withheld, w.start = max(w.withheld, until), max(w.start, until)
	}
	return w.sendAllSynced()
}

// sendAllSynced says that the states from before the connection are complete: of the nodes that owe a Synced, then of all.
func (w *watch) sendAllSynced() error {
	w.owes, w.broken, w.seen = false, false, nil
	for node, p := range w.nodes {
		if !p.owes {
			continue
		}
		if err := w.sendSynced(node, p, w.at); err != nil {
			return err
		}
	}
	return w.send(Event{At: w.position(w.at), Event: pleg.Event{Type: pleg.Synced, ObservedAt: time.Now()}})
}

// sendBookmark delivers a mark, at the end of the stream unless something has come since.
func (w *watch) sendBookmark(ctx context.Context, got uint64) error {
	info, err := w.info(ctx)
	if err != nil {
		return err
	}
	if last, err := w.lastSequence(ctx, w.subjects...); err != nil || last > max(got, w.at.message) {
		return err
	}
	if info.State.LastSeq > w.at.message {
		w.at.message, w.at.stored = info.State.LastSeq, info.State.LastTime.UnixNano()
	}
	return w.send(Event{Event: pleg.Event{Type: pleg.Bookmark, ObservedAt: time.Now()}, At: w.position(w.at)})
}

func (w *watch) send(ev Event) error {
	if !w.yield(ev, nil) {
		return errStopped
	}
	return nil
}

// position returns the position of a place; none if a watch that resumes there could get something twice.
func (w *watch) position(at place) Position {
	if w.broken || at.message < w.withheld {
		return ""
	}
	return at.position()
}
