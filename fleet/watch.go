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
	// Bookmarks requests a mark about every ten seconds while the watch has everything
	// that the stream has: a watch with few events gets new positions too. The first one
	// comes at once, unless the watch begins with a replay or resumes.
	Bookmarks bool

	Filter pleg.Filter

	// Disconnected, if not nil, is called after each attempt that failed and each
	// connection that broke, with the time until the next attempt. The goroutine that
	// ranges calls it.
	Disconnected func(err error, retryIn time.Duration)
	// Connected, if not nil, is called when a connection is made, and with several parts when no other
	// part is disconnected. The goroutine that ranges calls it.
	Connected func()
	// Unreadable, if not nil, is called for each message and state that cannot be read and is
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
		err := watchParts(ctx, js, o, yield)
		if err != nil && !errors.Is(err, errStopped) && ctx.Err() == nil {
			yield(Event{}, fmt.Errorf("watch fleet: %w", err))
		}
	}
}

// watchParts finds out how many parts there are, and watches them until no attempt can succeed.
func watchParts(ctx context.Context, js jetstream.JetStream, o WatchOptions, yield func(Event, error) bool) error {
	filter, err := o.complete()
	if err != nil {
		return option.Invalid(err)
	}
	parts := 0
	err = o.retry(ctx, js, newRetries(), func(ctx context.Context) (err error) {
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		parts, err = countParts(opening, js, nil)
		return err
	})
	if err != nil {
		return err
	}
	w := watch{server: &server{part: part{0, parts}, js: js}, o: o, filter: filter, yield: yield, retries: newRetries()}
	if parts > 1 {
		j := join{one: w, away: make(map[int]bool)}
		for range parts {
			j.retries = append(j.retries, newRetries())
		}
		return j.run(ctx)
	}
	return w.run(ctx)
}

// watch is owned by the goroutine that ranges.
type watch struct {
	*server // before the first connection without its streams

	o        WatchOptions
	filter   filter.Filter
	yield    func(Event, error) bool
	subjects []string
	retries  *backoff.Backoff

	// whole is true if every node that published before is in nodes.
	whole bool
	nodes map[string]*progress // nil until the first connection
	// at is how far the watch has come: it has every message up to there.
	at place
	// skipped is the first sequence number that the watch did not get and that may not be
	// that of another cluster or node; 0 if none.
	skipped uint64
	// checked is when a check found that the watch has everything; zero if a message came since.
	checked time.Time
	// received counts the messages of the consumer: it does not send again what is lost under way.
	received uint64
	// pending are replays that are not complete yet.
	pending []pending
	// broken is true from a Gap until the state after it has been delivered. If the
	// connection breaks meanwhile, the next one begins with a Gap and a replay.
	broken bool
}

// pending is a replay that is complete once the watch has the message at.
type pending struct {
	node string // empty for all
	at   uint64
}

var errStopped = errors.New("the loop over the range has ended")

func (o *WatchOptions) complete() (filter.Filter, error) {
	if err := checkName("WatchOptions.Cluster", o.Cluster); err != nil {
		return filter.Filter{}, err
	}
	for _, node := range o.Nodes {
		if err := checkName("WatchOptions.Nodes", node); err != nil {
			return filter.Filter{}, err
		}
	}
	if o.Replay && o.After != nil {
		return filter.Filter{}, errors.New("WatchOptions.Replay and After exclude each other: a watch that resumes gets a replay if necessary")
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

func (w *watch) run(ctx context.Context) error {
	for _, node := range tokens(w.o.Nodes) {
		w.subjects = append(w.subjects, w.subject(token(w.o.Cluster), node))
	}
	return w.o.retry(ctx, w.js, w.retries, w.connect)
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

// inactiveThreshold is how long the server keeps a consumer that does not ask for messages.
const inactiveThreshold = 5 * time.Minute

// heartbeat is how often the server says that it is there. If two do not come, the consumer is
// created again: if its leader is gone, it ends without an error. nats.go's default is 15 s.
const heartbeat = 3 * time.Second

// messageBuffer is the size of the messages that may wait while the loop over the range is busy:
// a thousand usual ones. It is larger on a server that accepts large ones.
const messageBuffer = 1 << 20

// connect delivers events until an error occurs.
func (w *watch) connect(ctx context.Context) error {
	ctx, stop := untilReconnected(ctx, w.js.Conn())
	defer stop()
	err := w.follow(ctx)
	return cmp.Or(context.Cause(ctx), err)
}

func (w *watch) follow(ctx context.Context) error {
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	opened, err := openPart(opening, w.js, w.part, nil)
	if err != nil {
		return err
	}
	w.server = opened
	replay, err := w.findPosition(opening)
	if err != nil {
		return err
	}
	opening, cancel = context.WithTimeout(ctx, openTimeout) // delivering a Gap may have taken long
	defer cancel()
	// Not jetstream's OrderedConsumer: it makes itself again, and waits 10 s for that while the
	// servers have no leader.
	consumer, err := request(opening, w.js, func(ctx context.Context) (jetstream.Consumer, error) {
		return w.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			FilterSubjects: w.subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: w.at.covered() + 1,
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactiveThreshold,
		})
	})
	if err != nil {
		return fmt.Errorf("create consumer: %w", explain(w.js.Conn(), err))
	}
	largest := int(w.js.Conn().MaxPayload())
	messages, err := consumer.Messages(jetstream.PullMaxBytes(max(messageBuffer, 4*largest)), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return fmt.Errorf("receive messages: %w", explain(w.js.Conn(), err))
	}
	defer messages.Stop()
	w.checked, w.received = time.Time{}, 0
	if w.o.Connected != nil {
		w.o.Connected()
	}
	if replay {
		if err := w.replayAll(ctx); err != nil {
			return err
		}
	}
	for {
		quiet, err := w.receive(ctx, messages)
		if err == nil && (w.o.Bookmarks || w.skipped > 0 || quiet && time.Since(w.checked) > restPeriod) {
			err = w.check(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// receive delivers messages until it may be time for a check, and reports whether none came.
func (w *watch) receive(ctx context.Context, messages jetstream.MessagesContext) (quiet bool, err error) {
	until, cancel := context.WithTimeout(ctx, checkPeriod)
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

func (w *watch) send(ev Event) error {
	if !w.yield(ev, nil) {
		return errStopped
	}
	return nil
}
