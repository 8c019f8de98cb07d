// Package dispatcher is the last stage: it numbers the events and keeps the log, which the
// subscribers read. It never waits for a subscriber. It may change in any version.
package dispatcher

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Options configure a [Dispatcher].
type Options struct {
	// History is the number of events in the log; at least 1.
	History int
	// SlowAfter is how long a subscriber may leave an event unread before that is
	// logged; positive.
	SlowAfter time.Duration
	// Status returns the newest good status of a pod, for subscribers that ask for statuses.
	Status func(pleg.PodUID) *pleg.PodStatus
	// Synced, if not nil, is called once the events of the first list have been published.
	Synced  func()
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Dispatcher writes the log and the present state of the pods according to the events.
type Dispatcher struct {
	epoch   string
	began   time.Time // the log counts its times from here
	opts    Options
	metrics *metrics
	log     *log

	// callers are subscribers that wait for a position in the log, or have closed.
	callers *mailbox.Box[*Subscription]
	names   atomic.Uint64
	// subscribers are the subscribers with a position. Only the loop replaces the list.
	subscribers subscribers
	// stopping is closed when Run has published its last state.
	stopping chan struct{}

	// The loop owns the fields below.

	last    state // the last published state, or the next one
	present present
	// pods caches the present state for further subscribers; nil if it has changed.
	pods []*presentPod
	// warned are the subscribers that the log names as slow.
	warned map[*Subscription]bool
}

// New returns a dispatcher that does not run yet.
func New(o Options) (*Dispatcher, error) {
	d := &Dispatcher{
		epoch:    fmt.Sprintf("%016x", rand.Uint64()),
		began:    time.Now(),
		opts:     o,
		log:      newLog(o.History),
		callers:  mailbox.New[*Subscription](),
		stopping: make(chan struct{}),
		present:  make(present),
		warned:   make(map[*Subscription]bool),
	}
	d.subscribers.Store(&[]*Subscription{})
	var err error
	d.metrics, err = newMetrics(o.Metrics, &d.subscribers)
	return d, err
}

// Epoch names this dispatcher's sequence numbers. Every dispatcher makes its own epoch.
func (d *Dispatcher) Epoch() string { return d.epoch }

// Position returns the position of the newest published event. It does not block.
func (d *Dispatcher) Position() pleg.Position {
	return pleg.Position{Epoch: d.epoch, Seq: d.log.state.Load().newest}
}

// Subscribe adds a subscriber. It gets every event appended to the log after Subscribe has
// returned, but no event that was appended before and is not published yet. If Run has not begun,
// it gets all events. Subscribe does not block and is safe for concurrent use. It returns an error
// if an option is bad, and [pleg.ErrStopped] once Run has returned.
func (d *Dispatcher) Subscribe(o pleg.SubscribeOptions) (*Subscription, error) {
	f, err := check(&o)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", option.Invalid(err))
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("subscriber-%d", d.names.Add(1))
	}
	s := newSubscription(d, o, f)
	s.at.Store(d.log.state.Load().newest)
	if !d.callers.Put(s) {
		return nil, pleg.ErrStopped
	}
	return s, nil
}

// Run appends the events of every outcome to the log, and each mark behind the outcomes that were
// sent before it, until in is closed. It runs once.
func (d *Dispatcher) Run(in <-chan stage.Outcome, marks <-chan stage.Mark) error {
	defer d.stop()
	slow := time.NewTicker(d.opts.SlowAfter)
	defer slow.Stop()
	for {
		select {
		case outcome, ok := <-in:
			if !ok {
				return nil
			}
			d.append(outcome)
			d.appendWaiting(in)
			d.publish() // wakes the subscribers once for all
		case mark, ok := <-marks:
			if !ok {
				marks = nil
				continue
			}
			d.appendWaiting(in) // the events that the mark covers
			d.mark(mark)
		case <-d.callers.Wake():
			d.answer(d.callers.Take())
		case <-slow.C:
			d.warnSlow()
		}
	}
}

// appendWaiting appends the outcomes that wait in a channel.
func (d *Dispatcher) appendWaiting(in <-chan stage.Outcome) {
	for range len(in) {
		d.append(<-in)
	}
}

// append appends the events of an outcome.
func (d *Dispatcher) append(o stage.Outcome) {
	d.answer(d.callers.Take()) // a subscriber from before it was sent must not miss it
	d.pods = nil
	labels, now := d.present.labels(o.UID, cmp.Or(o.Pod, o.Last)), d.now()
	known := d.present[o.UID] != nil
	entries := make([]entry, 0, len(o.Events))
	for _, ev := range o.Events {
		counter := d.metrics.events[ev.Type]
		if counter == nil {
			continue // this event only causes an inspection
		}
		counter.Inc()
		d.last.newest++
		ev.Seq, ev.Epoch = d.last.newest, d.epoch
		entries = append(entries, entry{ev, labels, now})
		d.log.append(&entries[len(entries)-1])
	}
	switch {
	case o.Pod == nil:
		delete(d.present, o.UID)
	case known || len(entries) > 0:
		d.present.apply(o.UID, labels, entries)
	}
}

// publish shows the readers the appended events.
func (d *Dispatcher) publish() {
	known := *d.log.state.Load()
	if known.changed = nil; d.last != known {
		d.log.publish(d.last)
	}
}

// answer gives a position to each subscriber that waits for it, and forgets the subscribers that have
// closed.
func (d *Dispatcher) answer(callers []*Subscription) {
	for _, s := range callers {
		if s.closed.Load() {
			d.subscribers.remove(s)
			delete(d.warned, s)
		} else {
			d.place(s)
		}
	}
}

// place gives a subscriber its position, and the present state if it needs that.
func (d *Dispatcher) place(s *Subscription) {
	after, newest := s.options.After, d.last.newest
	if s.counts == nil {
		d.subscribers.add(s)
	} else { // the log has moved past its position
		after = pleg.Position{Epoch: d.epoch, Seq: s.at.Load()}
	}
	p := position{seq: newest, at: newest}
	switch {
	case after == pleg.Position{}:
	case after.Epoch != d.epoch || after.Seq > newest:
		p.gap = pleg.OtherEpoch
	case after.Seq < newest && d.log.at(after.Seq+1) == nil:
		p.gap, p.missed = pleg.HistoryTooShort, newest-after.Seq
	default:
		p.at = after.Seq
	}
	if p.gap != "" || s.options.Replay {
		if d.pods == nil {
			d.pods = slices.Collect(maps.Values(d.present))
		}
		p.pods = d.pods
	}
	s.at.Store(p.at) // until the reader takes it
	s.positions <- p
}

// stop publishes the last state, which ends the subscriptions, and waits for their pumps.
func (d *Dispatcher) stop() {
	d.last.stopped = true
	d.publish()
	d.answer(d.callers.Close())
	close(d.stopping)
	for _, s := range *d.subscribers.Swap(&[]*Subscription{}) {
		if p := s.pump.Load(); p != nil {
			<-p.ended
		}
	}
}

func (d *Dispatcher) warnSlow() {
	for _, s := range *d.subscribers.Load() {
		if lag := s.Lag(); lag.Age > d.opts.SlowAfter && !d.warned[s] {
			d.warned[s] = true
			d.opts.Logger.Warn("subscriber is not reading", "stage", "dispatcher", "subscriber", s.Name(), "age", lag.Age, "events", lag.Events)
		}
	}
}

// now is the time since the dispatcher was created. It is cheaper to store for each
// event than a time.Time.
func (d *Dispatcher) now() time.Duration { return time.Since(d.began) }
