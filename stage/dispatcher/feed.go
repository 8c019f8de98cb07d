package dispatcher

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// feed is a batch on its way to a subscriber that has to read first. A feeder,
// a goroutine of the dispatcher, delivers it.
type feed struct {
	batch []pleg.Event
	// repairs is what the batch, a single PodSync then, stands for; nil if the
	// batch is not a repair.
	repairs *miss
	// recall ends the feeder, which answers on recalled how much of the batch
	// it had delivered.
	recall   chan struct{}
	recalled chan int
}

// nextBatch decides what a subscriber gets next, beginning with what fits in
// its buffer. It returns nil if that is all, or if a feeder is at work.
func (s *Subscription) nextBatch(now time.Duration) *feed {
	if s.feeding != nil {
		return nil
	}
	for len(s.pending) > 0 && s.send(&s.pending[0], now) {
		s.delivered++
		s.pending = s.pending[1:]
	}
	f := &feed{recall: make(chan struct{}), recalled: make(chan int)}
	switch {
	case len(s.pending) > 0:
		f.batch, s.pending = s.pending, nil
	case s.missed.len() > 0:
		f.repairs = s.missed.takeFirst()
		f.batch = []pleg.Event{f.repairs.podSync()}
	default:
		s.pending = nil
		return nil
	}
	s.feeding = f
	return f
}

// feed runs on the feeder.
func (s *Subscription) feed(f *feed, fed chan<- *Subscription) {
	for n, ev := range f.batch {
		select {
		case s.events <- ev:
		case <-f.recall:
			f.recalled <- n
			return
		}
	}
	select {
	case fed <- s:
	case <-f.recall:
		f.recalled <- len(f.batch)
	}
}

// takeBack ends the feeder. A repair it had not delivered is due again.
func (s *Subscription) takeBack(now time.Duration) {
	f := s.feeding
	f.recall <- struct{}{}
	n := <-f.recalled
	if f.repairs != nil && n == 0 {
		s.missed.putBack(f.repairs)
	}
	s.fed(n, now)
}

// fed notes that n events of the batch were delivered, and that it is over.
func (s *Subscription) fed(n int, now time.Duration) {
	for range n {
		s.sent.note(now)
	}
	if s.feeding.repairs != nil {
		s.repaired += uint64(n)
	} else {
		s.delivered += uint64(n)
	}
	s.feeding = nil
}

// sent remembers when the events in the buffer were put there.
type sent struct {
	times []time.Duration // a ring as long as the buffer
	next  int             // where the next one goes
	full  bool
}

func newSent(buffer int) sent { return sent{times: make([]time.Duration, buffer)} }

func (t *sent) note(now time.Duration) {
	t.times[t.next] = now
	if t.next++; t.next == len(t.times) {
		t.next, t.full = 0, true
	}
}

// at returns when the oldest of the queued events was sent. What a feeder at
// work has put there is not known yet.
func (t *sent) at(queued int) time.Duration {
	i := t.next - queued
	if i < 0 && t.full {
		i += len(t.times)
	}
	return t.times[max(0, i)]
}
