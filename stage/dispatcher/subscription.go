package dispatcher

import (
	"fmt"

	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// DefaultBuffer is the capacity of the kubelet's event channel.
const DefaultBuffer = 1000

// SubscribeOptions configure one subscriber.
type SubscribeOptions struct {
	// Name tells the subscriber apart in logs. If empty, "unnamed".
	Name string
	// Buffer is the number of events that may wait to be read; the memory for
	// them is taken at once, some 170 bytes each. If zero, [DefaultBuffer].
	Buffer int
}

// Subscription is one subscriber's end of the pipeline.
//
// Events of one pod arrive in the order in which its states were seen, and
// sequence numbers only grow. A subscriber that does not read loses events,
// never delays anyone, and converges: once the buffer has been full, events are
// discarded until the subscriber reads again; it then gets one PodSync for each
// pod it missed something of, with the number of events it stands for, and
// after them the events that follow.
type Subscription struct {
	name   string
	events chan pleg.Event // sent to by the dispatcher and its feeder, closed by the dispatcher
	leave  *mailbox.Box[*Subscription]

	// What follows belongs to the dispatcher.

	metrics *metrics
	missed  missed
	// inHand is the repair that a feeder holds for the subscriber; nil if none.
	inHand *miss
	warned bool
	// recall takes the repair back from the feeder, which answers on recalled
	// whether it had been delivered.
	recall   chan struct{}
	recalled chan bool
}

func newSubscription(o SubscribeOptions, m *metrics, leave *mailbox.Box[*Subscription]) (*Subscription, error) {
	if o.Buffer < 0 {
		return nil, fmt.Errorf("subscribe: Buffer must not be negative, got %d", o.Buffer)
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultBuffer
	}
	if o.Name == "" {
		o.Name = "unnamed"
	}
	return &Subscription{
		name:     o.Name,
		events:   make(chan pleg.Event, o.Buffer),
		leave:    leave,
		metrics:  m,
		missed:   newMissed(),
		recall:   make(chan struct{}),
		recalled: make(chan bool),
	}, nil
}

// Name returns the subscriber's name.
func (s *Subscription) Name() string { return s.name }

// Events returns the channel on which the events arrive. It is closed soon
// after [Subscription.Close], and when the pipeline ends; events that were
// already waiting can still be read then.
func (s *Subscription) Events() <-chan pleg.Event { return s.events }

// Close ends the subscription. It does not block, may be called from any
// goroutine, more than once, and while events are delivered.
func (s *Subscription) Close() { s.leave.Put(s) }

// offer delivers an event, or notes that the subscriber missed it. Nothing may
// overtake a repair, so until all are delivered every event is missed.
func (s *Subscription) offer(ev pleg.Event) bool {
	if s.inHand == nil && s.missed.len() == 0 {
		select {
		case s.events <- ev:
			return true
		default:
		}
	}
	if s.inHand != nil && s.inHand.last.PodUID == ev.PodUID {
		s.takeBack()
	}
	s.missed.add(ev)
	return false
}

// feed waits, on a goroutine of its own, for room in the buffer.
func (s *Subscription) feed(sync pleg.Event, repaired chan<- *Subscription) {
	select {
	case s.events <- sync:
	case <-s.recall:
		s.recalled <- false
		return
	}
	select {
	case repaired <- s:
	case <-s.recall:
		s.recalled <- true
	}
}

// takeBack ends the feeder. What it had not delivered is missed again.
func (s *Subscription) takeBack() {
	s.recall <- struct{}{}
	if delivered := <-s.recalled; delivered {
		s.metrics.repaired.Inc()
	} else {
		s.missed.putBack(s.inHand)
	}
	s.inHand = nil
}

func (s *Subscription) end() {
	if s.inHand != nil {
		s.takeBack()
	}
	close(s.events)
}
