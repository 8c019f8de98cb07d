package dispatcher

import (
	"sync/atomic"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// pump passes the events of a subscription to a channel. Nothing else waits for the reader of that
// channel.
type pump struct {
	events chan pleg.Event
	// before is the position before the event that waits in the channel.
	before atomic.Uint64
	ended  chan struct{}
}

// Events implements [pleg.Subscription].
func (s *Subscription) Events() <-chan pleg.Event {
	// The channel holds one event so that a mark can wait in it when the pipeline has ended.
	p := &pump{events: make(chan pleg.Event, 1), ended: make(chan struct{})}
	if !s.pump.CompareAndSwap(nil, p) {
		return s.pump.Load().events
	}
	if !s.reading.CompareAndSwap(false, true) { // and for ever
		close(p.events)
		close(p.ended)
		return p.events
	}
	go p.run(s) // until the subscription ends; Dispatcher.Run waits for it
	return p.events
}

func (p *pump) run(s *Subscription) {
	defer close(p.ended)
	defer close(p.events)
	for {
		before := s.at.Load()
		ev, err := s.next(nil)
		if err != nil {
			return
		}
		select {
		case p.events <- ev:
		case <-s.left:
			return
		case <-s.d.stopping:
			select {
			case p.events <- ev:
			default:
				p.finish(s, before)
				return
			}
		}
		p.before.Store(before)
	}
}

// finish puts a Gap in the place of the events that the reader has not taken: the one in the
// channel, and all later ones.
func (p *pump) finish(s *Subscription, before uint64) {
	select {
	case <-p.events:
		before = p.before.Load()
	default:
	}
	p.events <- s.stopped(before)
}
