package dispatcher

import (
	"slices"
	"time"
)

func (d *Dispatcher) addJoining() {
	for _, s := range d.joining.Take() {
		s.label, s.number = d.labels.assign(s.name)
		s.filter.Selector = d.selectors.share(s.filter.Selector)
		d.catchUp(s)
		d.subscribers = append(d.subscribers, s)
	}
}

// removeLeaving removes the subscribers that called Close.
func (d *Dispatcher) removeLeaving() {
	leaving := d.leaving.Take()
	d.addJoining() // a leaving subscriber may have joined a moment ago
	for _, s := range leaving {
		if i := slices.Index(d.subscribers, s); i >= 0 {
			d.subscribers = slices.Delete(d.subscribers, i, i+1)
			d.selectors.release(s.filter.Selector)
			d.labels.release(s.name, s.label, s.number)
			s.takeBack(d.now())
			close(s.events)
		}
	}
}

// feed delivers what waits for a subscriber, unless a feeder is doing so. A stalled
// subscriber is checked again later.
func (d *Dispatcher) feed(s *Subscription) {
	if f := s.next(d.now()); f != nil {
		d.feeders.Go(func() { s.feed(f, d.fed) })
	}
	if s.stalled() && s.missed.lost > 0 && !s.full() {
		d.startOver(s)
		return
	}
	if s.stalled() && !d.rechecking {
		d.rechecking = true
		d.recheck.Reset(recheckAfter)
	}
}

// checkStalled feeds those stalled subscribers that have read again.
func (d *Dispatcher) checkStalled() {
	d.rechecking = false
	for _, s := range d.subscribers {
		if s.stalled() {
			d.feed(s)
		}
	}
}

func (d *Dispatcher) warnSlow(now time.Duration) {
	for _, s := range d.subscribers {
		if age := s.oldest(now); age > d.slowAfter && !s.warnedSlow {
			s.warnedSlow = true
			d.log.Warn("subscriber is not reading", "subscriber", s.label, "age", age, "queued", len(s.events))
		}
	}
}

// closeAll closes the channel of every subscriber, also of those that joined too late
// to be served.
func (d *Dispatcher) closeAll() {
	d.subscribers = append(d.subscribers, d.joining.Close()...)
	d.leaving.Close()
	for _, s := range d.subscribers {
		s.takeBack(d.now())
		s.closeEvents(d.endMark(s))
	}
	d.subscribers = nil
	d.feeders.Wait()
	close(d.stopped)
}
