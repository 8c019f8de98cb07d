package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Subscribe returns a subscription across all connections, which are retried. It connects when it is
// read for the first time, and gets the events that are published from then on. After a broken
// connection it gets the events published since, and then a Synced. If they are no longer available,
// it first gets a Gap, and then a replay that replaces everything before.
//
// The error wraps [pleg.ErrInvalidOption]. Next returns an error only if no attempt can succeed, for
// example because the selector is bad, the socket belongs to another user, or the daemon is too old
// for an option.
func (c *Client) Subscribe(o pleg.SubscribeOptions) (pleg.Subscription, error) {
	request, err := newRequest(o)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &subscription{name: o.Name, ctx: ctx, cancel: cancel, events: make(chan pleg.Event)}
	s.watch = &watch{client: c, options: o, request: request, yield: s.deliver}
	return s, nil
}

// Who reads a subscription.
const (
	nobody  int32 = iota
	next          // during one call
	channel       // from the first call of Events on
)

// subscription is a watch whose events a goroutine passes to a channel, which all readers read.
type subscription struct {
	name   string
	watch  *watch
	ctx    context.Context //nolint:containedctx // Close ends it
	cancel context.CancelFunc
	once   sync.Once
	events chan pleg.Event
	err    error // the reason why events was closed
	reader atomic.Int32
	lag    atomic.Pointer[pleg.Lag]
}

// start starts the goroutine. Close ends it, as does an error that no attempt can remove.
func (s *subscription) start() {
	s.once.Do(func() {
		go func() {
			defer close(s.events)
			if s.err = s.watch.run(s.ctx); s.ctx.Err() != nil {
				s.err = pleg.ErrClosed
			}
		}()
	})
}

func (s *subscription) deliver(ev pleg.Event, _ error) bool {
	lag := s.watch.lag
	s.lag.Store(&lag)
	select {
	case s.events <- ev:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// Name implements [pleg.Subscription].
func (s *subscription) Name() string { return s.name }

// Next implements [pleg.Subscription].
func (s *subscription) Next(ctx context.Context) (pleg.Event, error) {
	if s.ctx.Err() != nil {
		return pleg.Event{}, pleg.ErrClosed
	}
	if !s.reader.CompareAndSwap(nobody, next) {
		return pleg.Event{}, pleg.ErrTwoReaders
	}
	defer s.reader.Store(nobody)
	s.start()
	if ctx.Err() != nil {
		return pleg.Event{}, context.Cause(ctx)
	}
	select {
	case ev, ok := <-s.events:
		if !ok {
			return pleg.Event{}, s.err
		}
		return ev, nil
	case <-ctx.Done():
		return pleg.Event{}, context.Cause(ctx)
	}
}

// All implements [pleg.Subscription].
func (s *subscription) All(ctx context.Context) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		for {
			ev, err := s.Next(ctx)
			switch {
			case errors.Is(err, pleg.ErrClosed) || err != nil && ctx.Err() != nil:
				return
			case !yield(ev, err) || err != nil:
				return
			}
		}
	}
}

// Events implements [pleg.Subscription].
func (s *subscription) Events() <-chan pleg.Event {
	if !s.reader.CompareAndSwap(nobody, channel) && s.reader.Load() != channel {
		closed := make(chan pleg.Event)
		close(closed)
		return closed
	}
	s.start()
	return s.events
}

// Lag implements [pleg.Subscription].
func (s *subscription) Lag() pleg.Lag {
	if lag := s.lag.Load(); lag != nil {
		return *lag
	}
	return pleg.Lag{}
}

// Close implements [pleg.Subscription].
func (s *subscription) Close() { s.cancel() }
