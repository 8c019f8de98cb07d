package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Watch ranges over the events of a subscription without a goroutine: it subscribes when the range
// begins and closes when the range ends. An error of [Client.Subscribe] ends the range.
func (c *Client) Watch(ctx context.Context, o pleg.SubscribeOptions) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		request, err := newRequest(o)
		if err != nil {
			yield(pleg.Event{}, fmt.Errorf("watch: %w", err))
			return
		}
		w := &watch{client: c, options: o, request: request, yield: yield}
		if err := w.run(ctx); err != nil && ctx.Err() == nil {
			yield(pleg.Event{}, err)
		}
	}
}

var errStopped = errors.New("the loop over the range has ended")

// watch is one range over the events.
type watch struct {
	client  *Client
	options pleg.SubscribeOptions
	request *plegv1.WatchRequest
	yield   func(pleg.Event, error) bool

	// last is the position of the last event that was delivered; nil before the first.
	last *plegv1.Position
	// stateless is set while a watch that resumes at a position lacks the state at that position.
	stateless bool
	// lag is how far the server was behind when it sent the last event.
	lag pleg.Lag
	// received is the time at which the current connection delivered its first event; zero before.
	received time.Time
	// forbidden is how many of the last attempts the socket refused because of its permissions.
	forbidden int
}

// run connects with backoff. It returns nil if the loop over the range has ended.
func (w *watch) run(ctx context.Context) error {
	request := w.request
	w.last = request.GetResumeAfter()
	w.stateless = w.last != nil && w.options.Replay
	options := &w.client.options
	retries := backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	for {
		w.received = time.Time{}
		err := w.connect(ctx, request)
		if errors.Is(err, errStopped) {
			return nil
		}
		if ctx.Err() != nil || isFinal(err) || w.isForbidden(err) {
			return fmt.Errorf("watch: %w", err)
		}
		// A server that ends each connection at once must not be asked again and again.
		if !w.received.IsZero() && time.Since(w.received) >= retries.Longest() {
			retries.Reset()
		}
		wait := retries.Next()
		options.Logger.WarnContext(ctx, "disconnected from the server", "err", err, "retryIn", wait)
		if options.Disconnected != nil {
			options.Disconnected(err, wait)
		}
		if err := backoff.Wait(ctx, wait); err != nil {
			return err
		}
	}
}

// maxForbidden is the number of refused attempts in a row after which a refusal is final; they take
// two seconds or more. Whatever starts the daemon may create the folder of the socket, and then set
// its mode.
const maxForbidden = 6

// isForbidden reports whether the socket belongs to another user, after an attempt that failed.
func (w *watch) isForbidden(err error) bool {
	if !errors.Is(err, fs.ErrPermission) {
		w.forbidden = 0
		return false
	}
	w.forbidden++
	return w.forbidden == maxForbidden
}

// connect connects once and receives until the connection breaks.
func (w *watch) connect(ctx context.Context, request *plegv1.WatchRequest) error {
	// The server gets no deadline: it could end the call a moment before ctx ends, which
	// would look like a broken connection.
	ended := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ended))
	defer cancel()
	defer context.AfterFunc(ended, cancel)()
	// Each attempt needs a new link: a link that failed backs off by itself.
	link, err := newLink(w.client.options)
	if err != nil {
		return err
	}
	defer link.Close()
	// Without a last event it requests earlier events or a replay, even if none is wanted: their
	// end is the first position after which the watch can resume. A watch that asked for the state
	// and did not get all of it yet asks for it again.
	if w.last != nil {
		request.Since = nil
	}
	first := w.last == nil && (request.GetSince() == nil || w.options.Replay)
	request.ResumeAfter, request.Replay = w.last, first || w.stateless
	if err := link.knows(ctx, request); err != nil {
		return err
	}
	stream, err := link.pleg.Watch(ctx, request)
	if err != nil {
		return link.callError("connect", err)
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return link.callError("receive", status.Error(codes.Unavailable, "the server ended the stream"))
		}
		if err != nil {
			return link.callError("receive", err)
		}
		if w.received.IsZero() {
			w.received = time.Now()
		}
		w.lag = pleg.Lag{Events: m.GetLagEvents(), Age: m.GetLagAge().AsDuration()}
		if !w.deliver(m.GetEvent(), request) {
			return errStopped
		}
	}
}

// deliver yields an event, unless the options do not want it. It returns false if the loop
// over the range has ended.
func (w *watch) deliver(m *plegv1.Event, request *plegv1.WatchRequest) bool {
	ev := wire.ToEvent(m)
	if ev.Type == pleg.Gap {
		w.options.Replay = true // what follows replaces everything, also if another replay is going on
	}
	unwantedReplay := request.Replay && !w.options.Replay
	if unwantedReplay && ev.Replayed {
		return true
	}
	w.stateless = w.stateless && ev.Replayed
	if at, ok := ev.Position(); ok && !w.stateless {
		w.last = wire.FromPosition(at)
	}
	if unwantedReplay && ev.Type == pleg.Synced {
		request.Replay = false
		return !w.options.Bookmarks || w.yield(ev, nil)
	}
	if ev.Type == pleg.Bookmark && !w.options.Bookmarks {
		return true
	}
	return w.yield(ev, nil)
}

// newRequest returns the request for the server. It always asks for bookmarks: they keep
// the position of a watch with few events within the server's history.
func newRequest(o pleg.SubscribeOptions) (*plegv1.WatchRequest, error) {
	r, err := wire.FromOptions(o)
	if err != nil {
		return nil, option.Invalid(fmt.Errorf("SubscribeOptions.%w", err))
	}
	r.Bookmarks = true
	return r, nil
}
