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

// Subscription is a position in the log of the daemon's pipeline: see [pleg.Subscription].
type Subscription = pleg.Subscription

// Subscribe returns a subscription that reconnects and resumes as [Client.Watch] does. It connects
// when it is read for the first time, and gets what is published from then on. The error wraps
// [pleg.ErrInvalidOption]; what only the server can check is an error of Next.
func (c *Client) Subscribe(o pleg.SubscribeOptions) (Subscription, error) {
	request, err := newRequest(o)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &subscription{name: o.Name, ctx: ctx, cancel: cancel, events: make(chan pleg.Event)}
	s.watch = &watch{client: c, options: o, request: request, yield: s.deliver}
	return s, nil
}

// subscription is a watch whose events a goroutine passes to a channel, which all readers read.
type subscription struct {
	name   string
	watch  *watch
	ctx    context.Context //nolint:containedctx // Close ends it
	cancel context.CancelFunc
	once   sync.Once
	events chan pleg.Event
	err    error // why events was closed
	lag    atomic.Pointer[pleg.Lag]
}

// start starts the goroutine. Close ends it, as does an error that no attempt can mend.
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
	s.start()
	if s.ctx.Err() != nil {
		return pleg.Event{}, pleg.ErrClosed
	}
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
