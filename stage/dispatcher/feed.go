package dispatcher

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// feed is a batch that a feeder, a goroutine of the dispatcher, delivers to a
// subscriber that reads but whose buffer is full.
type feed struct {
	batch []pleg.Event
	// repairs is the number of events at its beginning that stand for missed ones.
	repairs int
	// recall ends the feeder. It answers on recalled how much of the batch it has
	// delivered.
	recall   chan struct{}
	recalled chan int
}

// next delivers what waits for a subscriber as far as its buffer has room, and
// returns the rest for a feeder; nil if nothing is left. Repairs wait until there is
// room, so that everything missed until then counts into one repair for each pod.
func (s *Subscription) next(now time.Duration) *feed {
	if s.feeding != nil {
		return nil
	}
	if rest := s.sendAll(s.pending, now); len(rest) > 0 {
		s.delivered += uint64(len(s.pending) - len(rest))
		return s.startFeed(rest, 0)
	}
	s.delivered += uint64(len(s.pending))
	s.pending = nil
	if !s.missed.any() || s.missed.lost > 0 || s.full() {
		return nil
	}
	repairs := s.missed.repairAll()
	batch := repairs
	if s.owed != nil {
		s.owed.Seq = max(s.owed.Seq, repairs[len(repairs)-1].Seq)
		batch, s.owed = append(batch, *s.owed), nil
	}
	rest := s.sendAll(batch, now)
	s.count(len(batch)-len(rest), len(repairs))
	if len(rest) == 0 {
		return nil
	}
	return s.startFeed(rest, max(0, len(repairs)-(len(batch)-len(rest))))
}

// count counts n delivered events, of which up to that many are repairs.
func (s *Subscription) count(n, repairs int) {
	s.repaired += uint64(min(n, repairs))
	s.delivered += uint64(max(0, n-repairs))
}

// sendAll sends what fits and returns the rest.
func (s *Subscription) sendAll(events []pleg.Event, now time.Duration) []pleg.Event {
	for len(events) > 0 && s.send(&events[0], now) {
		events = events[1:]
	}
	return events
}

func (s *Subscription) startFeed(batch []pleg.Event, repairs int) *feed {
	s.pending = nil
	s.feeding = &feed{batch: batch, repairs: repairs, recall: make(chan struct{}), recalled: make(chan int)}
	return s.feeding
}

// feed runs on the feeder.
func (s *Subscription) feed(f *feed, fed chan<- *Subscription) {
	for n, ev := range f.batch {
		select {
		case s.events <- s.withStatus(ev):
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

// recallFeed ends the feeder of a subscriber that leaves, and returns how much of its
// batch it has delivered.
func (s *Subscription) recallFeed(now time.Duration) int {
	s.feeding.recall <- struct{}{}
	n := <-s.feeding.recalled
	s.finishFeed(n, now)
	return n
}

// finishFeed ends a batch of which n events were delivered.
func (s *Subscription) finishFeed(n int, now time.Duration) {
	for range n {
		s.sent.note(now)
	}
	s.count(n, s.feeding.repairs)
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

// at returns when the oldest of the queued events was sent. It does not know yet what
// a running feeder has sent.
func (t *sent) at(queued int) time.Duration {
	i := t.next - queued
	if i < 0 && t.full {
		i += len(t.times)
	}
	return t.times[max(0, i)]
}
