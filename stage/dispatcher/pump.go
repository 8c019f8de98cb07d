package dispatcher

import (
	"sync/atomic"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// pump passes the events of a subscription to a channel. It alone waits for the reader of it.
type pump struct {
	events chan pleg.Event
	// before is the place before the event that waits in the channel.
	before atomic.Uint64
	ended  chan struct{}
}

// Events implements [pleg.Subscription].
func (s *Subscription) Events() <-chan pleg.Event {
	// The channel has one place so that a mark can wait in it when the pipeline has ended.
	p := &pump{events: make(chan pleg.Event, 1), ended: make(chan struct{})}
	if !s.pump.CompareAndSwap(nil, p) {
		return s.pump.Load().events
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
			p.before.Store(before)
		case <-s.left:
			return
		case <-s.d.stopping:
			p.finish(s, ev)
			return
		}
	}
}

// finish delivers what the reader takes at once, from an event on, and counts the rest.
func (p *pump) finish(s *Subscription, ev pleg.Event) {
	missed, err := uint64(0), error(nil)
	for ; err == nil; ev, err = s.next(nil) {
		if missed == 0 {
			select {
			case p.events <- ev:
				continue
			default:
			}
		}
		missed += standsFor(ev)
	}
	if missed == 0 {
		return
	}
	mark := s.newMark(pleg.Gap, s.at.Load())
	mark.Reason, mark.Missed = pleg.Stopped, missed
	for {
		select {
		case p.events <- *mark:
			return
		case unread := <-p.events:
			mark.Missed += standsFor(unread)
		}
	}
}

// standsFor returns the number of events that an undelivered one stands for.
func standsFor(ev pleg.Event) uint64 {
	if ev.PodUID == "" {
		return ev.Missed // only a Gap has some
	}
	return 1
}
