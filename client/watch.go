package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Position is a place in the stream of one pipeline's events, such as a Synced
// or a Bookmark carries it.
type Position struct {
	// Epoch is the pipeline's. If empty, Seq is taken to be of the present one.
	Epoch string
	// Seq is the last sequence number that is known.
	Seq uint64
}

// WatchOptions configure one watch. The zero value asks for all events from now
// on, but network events.
type WatchOptions struct {
	// Name tells the watch apart in the logs and metrics of the server. If
	// empty, the server makes one up.
	Name string
	// Buffer is the number of events that may wait at the server. If zero, the
	// server's default.
	Buffer int

	// Replay asks for the present state first, and then one Synced.
	Replay bool
	// After asks for the events behind this position first, and then one
	// Synced. If they cannot be had any more, a Gap says so and a replay
	// follows. Nil asks for nothing.
	After *Position
	// Bookmarks asks for a mark each time that everything listed so far has
	// been delivered.
	Bookmarks bool

	// Types are the event types wanted. If empty, all.
	Types []pleg.EventType
	// Namespaces and PodUIDs are the pods wanted. If empty, all.
	Namespaces []string
	PodUIDs    []pleg.PodUID
	// Selector is a Kubernetes label selector on the pod's labels. If empty,
	// all.
	Selector string
	// OmitSandboxes leaves out the events of pod sandboxes.
	OmitSandboxes bool
	// NetworkEvents asks for NetworkSetupCompleted and NetworkFailed.
	NetworkEvents bool

	// Disconnected, if not nil, is told of each attempt that failed and each
	// connection lost, and when the next attempt is. It is called by the
	// goroutine that ranges.
	Disconnected func(err error, retryIn time.Duration)
}

// Watch ranges over the events until ctx ends, as one subscription across
// however many connections. It connects at once and again until it succeeds. The
// range ends with an error only if no attempt ever can succeed, for instance
// because a selector is bad or the socket is another user's; otherwise the error
// is nil.
//
// After a connection was lost, what was published meanwhile follows and then a
// Synced. If it cannot be had any more there is a Gap first, and a replay that
// takes the place of all that was known. A connection lost while missed events
// were being made good is the one case in which sequence numbers go back: the
// missed events themselves follow then, after the PodSync that stood for them.
func (c *Client) Watch(ctx context.Context, o WatchOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		w := &watch{client: c, options: o, yield: yield}
		if err := w.run(ctx); err != nil && ctx.Err() == nil {
			yield(pleg.Event{}, fmt.Errorf("watch: %w", err))
		}
	}
}

// errEnough ends a watch whose range was left.
var errEnough = errors.New("the consumer has left")

// watch is one range over the events.
type watch struct {
	client  *Client
	options WatchOptions
	yield   func(pleg.Event, error) bool

	// last is behind what the consumer has; nil before the first event.
	last *plegv1.Position
	// received is whether the present connection has brought anything.
	received bool
}

// run connects again and again. It returns nil if the consumer has left.
func (w *watch) run(ctx context.Context) error {
	request, err := w.options.request()
	if err != nil {
		return err
	}
	w.last = request.GetResumeAfter()
	options := &w.client.options
	backoff := options.MinBackoff
	for {
		w.received = false
		err := w.connect(ctx, request)
		if errors.Is(err, errEnough) {
			return nil
		}
		if ctx.Err() != nil || final(err) {
			return err
		}
		if w.received {
			backoff = options.MinBackoff
		}
		wait := backoff/2 + rand.N(backoff/2+1)
		backoff = min(2*backoff, options.MaxBackoff)
		options.Logger.WarnContext(ctx, "lost the connection", "err", err, "retryIn", wait)
		if w.options.Disconnected != nil {
			w.options.Disconnected(err, wait)
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// connect makes one connection and receives until it is lost.
func (w *watch) connect(ctx context.Context, request *plegv1.WatchRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A new one each time: a link that has failed keeps a backoff of its own.
	link, err := newLink(w.client.options)
	if err != nil {
		return err
	}
	defer link.Close()
	w.place(request)
	stream, err := link.pleg.Watch(ctx, request)
	if err != nil {
		return link.failed("connect", err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the server has ended the stream")
		}
		if err != nil {
			return link.failed("receive", err)
		}
		w.received = true
		if !w.take(m.GetEvent(), request) {
			return errEnough
		}
	}
}

// place asks for what follows the last event. Who wants neither replay nor
// resume gets a replay too, up to whose end nothing is passed on: that is the
// first position it can resume behind.
func (w *watch) place(request *plegv1.WatchRequest) {
	request.ResumeAfter = w.last
	request.Replay = w.last == nil
}

// take passes an event on unless the consumer did not ask for it, and reports
// whether to go on.
func (w *watch) take(m *plegv1.Event, request *plegv1.WatchRequest) bool {
	ev := wire.ToEvent(m)
	opening := request.Replay && !w.options.Replay
	if opening && ev.Type != pleg.Synced {
		return true
	}
	if mayResume(ev) {
		w.last = &plegv1.Position{Epoch: m.GetEpoch(), Seq: m.GetSeq()}
	}
	if opening {
		request.Replay = false
		return true
	}
	if ev.Type == pleg.Bookmark && !w.options.Bookmarks {
		return true
	}
	return w.yield(ev, nil)
}

// mayResume reports whether nothing is lost by resuming behind an event. Behind
// a PodSync for missed events others may be due that have lower numbers; a Gap
// comes before what it announces.
func mayResume(ev pleg.Event) bool {
	return ev.Missed == 0 && ev.Type != pleg.Gap
}
