package dispatcher

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/filter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Subscription is one subscriber's end of the pipeline; the root package documents it.
type Subscription struct {
	name   string
	buffer int
	// events is sent to by the dispatcher or its feeder, closed by the dispatcher. It
	// has one place more than the buffer, for the mark at the end.
	events chan pleg.Event
	leave  *mailbox.Box[*Subscription]

	filter    filter.Filter
	replay    bool // also set by a Gap
	after     pleg.Position
	since     time.Time
	bookmarks bool
	status    func(pleg.PodUID) *pleg.PodStatus // nil if statuses are not wanted

	// The dispatcher owns the fields below.

	label  string
	number int // that of [names.take]
	// syncing is set while Synced waits for the initial state to be complete, owed
	// while it waits for missed.
	syncing bool
	owed    *pleg.Event
	// held waits for the labels of a pod. Meanwhile nothing is added to pending and
	// missed.
	held []held
	// feeding is what a feeder is delivering; nil if there is none. pending waits
	// behind it and missed behind that, so that nothing overtakes.
	feeding *feed
	pending []pleg.Event
	missed  missed
	sent    sent

	delivered, discarded, repaired uint64
	warnedFull, warnedSlow         bool
}

func newSubscription(o pleg.SubscribeOptions, f filter.Filter, leave *mailbox.Box[*Subscription]) *Subscription {
	return &Subscription{
		name:      o.Name,
		buffer:    o.Buffer,
		events:    make(chan pleg.Event, o.Buffer+1),
		leave:     leave,
		filter:    f,
		replay:    o.Replay,
		after:     o.After,
		since:     o.Since,
		bookmarks: o.Bookmarks,
		missed:    newMissed(),
		sent:      newSent(o.Buffer + 1),
	}
}

// Name returns the subscriber's name.
func (s *Subscription) Name() string { return s.name }

// Events returns the channel on which the events arrive. It is closed soon after
// [Subscription.Close] and when the pipeline ends. Events that wait in it can still
// be read then.
func (s *Subscription) Events() <-chan pleg.Event { return s.events }

// Close ends the subscription. It does not block and may be called by any goroutine,
// more than once, and while events are delivered.
func (s *Subscription) Close() { s.leave.Put(s) }

// live reports whether nothing waits that a new event could overtake.
func (s *Subscription) live() bool {
	return s.feeding == nil && len(s.pending) == 0 && !s.missed.any() && len(s.held) == 0
}

// stalled reports whether nothing can be delivered until the subscriber reads.
func (s *Subscription) stalled() bool { return s.feeding == nil && s.missed.any() }

// offer delivers an event or keeps it while the subscriber catches up. If neither is
// possible, it notes a miss and reports false.
func (s *Subscription) offer(ev *pleg.Event, now time.Duration) bool {
	if s.live() && s.send(ev, now) {
		s.delivered++
		return true
	}
	if s.feeding != nil && !s.missed.any() && len(s.pending) < s.buffer {
		s.pending = append(s.pending, *ev)
		return true
	}
	s.missed.add(ev)
	s.discarded++
	return false
}

// withStatus adds the pod's newest good status, if the subscriber asked for statuses. The feeder
// calls it too.
func (s *Subscription) withStatus(ev pleg.Event) pleg.Event {
	if s.status != nil && ev.PodUID != "" {
		ev.Status = s.status(ev.PodUID)
	}
	return ev
}

func (s *Subscription) full() bool { return len(s.events) >= s.buffer }

func (s *Subscription) send(ev *pleg.Event, now time.Duration) bool {
	if s.full() {
		return false
	}
	s.events <- s.withStatus(*ev) // does not wait: while a feeder sends, send is not called
	s.sent.note(now)
	return true
}

// takeBack ends a feeder. What it has not delivered is pending again.
func (s *Subscription) takeBack(now time.Duration) {
	if s.feeding == nil {
		return
	}
	batch := s.feeding.batch
	s.pending = append(batch[s.recallFeed(now):], s.pending...)
}

// closeEvents closes the channel, after the mark if there is one. If a feeder has filled the
// place for it, the mark also stands for the oldest event that was not read.
func (s *Subscription) closeEvents(mark *pleg.Event) {
	for mark != nil {
		select {
		case s.events <- *mark:
			mark = nil
			continue
		default:
		}
		select {
		case ev := <-s.events:
			mark.Missed += standsFor(&ev)
		default:
		}
	}
	close(s.events)
}

// oldest returns the age of the oldest unread event.
func (s *Subscription) oldest(now time.Duration) time.Duration {
	if queued := len(s.events); queued > 0 {
		return now - s.sent.at(queued)
	}
	return 0
}
