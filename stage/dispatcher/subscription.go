package dispatcher

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Subscription is a position in the log. Its reader reads the log, applies the filter and waits,
// all in its own goroutine. The loop only sets its first position.
type Subscription struct {
	d       *Dispatcher
	options pleg.SubscribeOptions
	filter  filter.Filter

	// positions are the loop's answers to a subscriber in its mailbox. There is one answer at
	// a time.
	positions chan position
	closed    atomic.Bool
	left      chan struct{} // closed by Close
	pump      atomic.Pointer[pump]
	// reading is set during a read, and from the first call of Events on.
	reading atomic.Bool
	// at is the number of the last event that the reader has passed.
	at atomic.Uint64
	// counts is nil until the loop has given the subscription a position.
	counts *counts

	reader reader
}

// reader is the state of the goroutine that reads a subscription; nobody else touches it.
type reader struct {
	// placed is set unless the reader waits for a position. seen is the last state that it has
	// seen.
	placed bool
	seen   *state
	gap    *pleg.Event // comes next
	replay []*entry    // comes after that
	// skip is the number up to which events from before Options.Since are skipped.
	skip uint64
	// syncing is set while Synced is owed, which comes at this number or later.
	syncing bool
	synced  uint64
	mark    *bookmark // the last mark that was passed on
}

// position is the place in the log at which a subscriber continues.
type position struct {
	at, seq uint64 // the numbers of the last event that it has passed, and of the last published event
	// gap is the reason of the Gap that comes first, if any, and missed its number of events.
	gap    string
	missed uint64
	pods   []*presentPod // the state at seq, if it is needed
}

func newSubscription(d *Dispatcher, o pleg.SubscribeOptions, f filter.Filter) *Subscription {
	return &Subscription{d: d, options: o, filter: f, positions: make(chan position, 1), left: make(chan struct{})}
}

// Name implements [pleg.Subscription].
func (s *Subscription) Name() string { return s.options.Name }

// Close implements [pleg.Subscription].
func (s *Subscription) Close() {
	if !s.closed.Swap(true) {
		close(s.left)
		s.d.callers.Put(s)
	}
}

// Next implements [pleg.Subscription].
func (s *Subscription) Next(ctx context.Context) (pleg.Event, error) {
	ev, err := s.readOne(ctx.Done())
	if errors.Is(err, errEnded) {
		err = context.Cause(ctx)
	}
	return ev, err
}

// readOne is next for one reader at a time.
func (s *Subscription) readOne(ended <-chan struct{}) (pleg.Event, error) {
	if s.closed.Load() {
		return pleg.Event{}, pleg.ErrClosed
	}
	if !s.reading.CompareAndSwap(false, true) {
		return pleg.Event{}, pleg.ErrTwoReaders
	}
	defer s.reading.Store(false)
	return s.next(ended)
}

// All implements [pleg.Subscription].
func (s *Subscription) All(ctx context.Context) iter.Seq2[pleg.Event, error] {
	return func(yield func(pleg.Event, error) bool) {
		for {
			ev, err := s.readOne(ctx.Done())
			switch {
			case errors.Is(err, errEnded) || errors.Is(err, pleg.ErrClosed):
				return
			case !yield(ev, err) || err != nil:
				return
			}
		}
	}
}

// Lag implements [pleg.Subscription].
func (s *Subscription) Lag() pleg.Lag {
	at := s.at.Load()
	if p := s.pump.Load(); p != nil && len(p.events) > 0 {
		at = p.before.Load()
	}
	newest := s.d.log.state.Load().newest
	if at >= newest {
		return pleg.Lag{}
	}
	return pleg.Lag{Events: newest - at, Age: s.d.now() - s.d.log.oldest(at+1, newest)}
}
