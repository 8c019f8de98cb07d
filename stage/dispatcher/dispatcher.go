// Package dispatcher is the last stage: it numbers the events and keeps the log, which the
// subscribers read. It never waits for a subscriber. It has no stability promise.
package dispatcher

import (
	"cmp"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	Status  func(pleg.PodUID) *pleg.PodStatus
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Dispatcher writes the log and the present state of the pods according to the events.
type Dispatcher struct {
	epoch     string
	began     time.Time // zero of the times in the log
	slowAfter time.Duration
	status    func(pleg.PodUID) *pleg.PodStatus
	logger    *slog.Logger
	metrics   *metrics
	log       *log

	// starting are new subscribers, and those that the log has moved past: they wait for a
	// place in the log. leaving are those that have closed.
	starting, leaving *mailbox.Box[*Subscription]
	names             atomic.Uint64
	// queries are requests for the figures of the subscribers.
	queries chan chan<- []stats
	// started is closed when Run begins, stopping when it has published its last state, and
	// stopped when it ends.
	started, stopping, stopped chan struct{}

	// The loop owns the fields below.

	last        state // the last published, or what is to be published next
	subscribers map[*Subscription]struct{}
	labels      names
	present     present
	// pods is the present state for the next of many subscribers; nil if it has changed.
	pods []*presentPod
}

// New returns a dispatcher that does not run yet.
func New(o Options) (*Dispatcher, error) {
	d := &Dispatcher{
		epoch:       fmt.Sprintf("%016x", rand.Uint64()),
		began:       time.Now(),
		slowAfter:   o.SlowAfter,
		status:      o.Status,
		logger:      o.Logger.With("stage", "dispatcher"),
		log:         newLog(o.History),
		starting:    mailbox.New[*Subscription](),
		leaving:     mailbox.New[*Subscription](),
		queries:     make(chan chan<- []stats),
		started:     make(chan struct{}),
		stopping:    make(chan struct{}),
		stopped:     make(chan struct{}),
		subscribers: make(map[*Subscription]struct{}),
		labels:      newNames(),
		present:     make(present),
	}
	var err error
	d.metrics, err = newMetrics(o.Metrics, d.queryStats)
	return d, err
}

// Epoch names this dispatcher's sequence numbers. Every dispatcher has its own.
func (d *Dispatcher) Epoch() string { return d.epoch }

// Subscribe adds a subscriber. It gets every event published after Subscribe has
// returned; if Run has not begun, it gets all. Subscribe does not block and is safe
// for concurrent use. It returns an error if an option is bad, and [pleg.ErrStopped] once
// Run has returned.
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
	if !d.starting.Put(s) {
		return nil, pleg.ErrStopped
	}
	return s, nil
}

// Run appends the events of every outcome to the log, and the marks behind those that were
// sent before them, until in is closed. It runs once.
func (d *Dispatcher) Run(in <-chan stage.Outcome, marks <-chan stage.Mark) error {
	close(d.started)
	defer d.stop()
	slow := time.NewTicker(d.slowAfter)
	defer slow.Stop()
	for {
		select {
		case outcome, ok := <-in:
			if !ok || !d.appendAll(outcome, in) {
				return nil
			}
		case mark, ok := <-marks:
			if !ok {
				marks = nil
				continue
			}
			for range len(in) { // what the mark counts on waits there
				d.append(<-in)
			}
			d.mark(mark)
		case <-d.starting.Wake():
			d.placeAll()
		case <-d.leaving.Wake():
			d.leave()
		case reply := <-d.queries:
			reply <- d.stats()
		case <-slow.C:
			d.warnSlow()
		}
	}
}

// appendAll appends an outcome and a bounded number of those that wait behind it, and wakes
// the subscribers once for all. It reports whether in is still open.
func (d *Dispatcher) appendAll(o stage.Outcome, in <-chan stage.Outcome) bool {
	defer d.publish()
	for taken := 0; ; taken++ {
		d.append(o)
		if taken == stage.OutcomeBuffer {
			return true
		}
		var ok bool
		select {
		case o, ok = <-in:
			if !ok {
				return false
			}
		default:
			return true
		}
	}
}

// append appends the events of an outcome. Those that come first of a pod before the first
// list is settled are the state that the pipeline has found.
func (d *Dispatcher) append(o stage.Outcome) {
	d.admit()
	d.pods = nil
	labels, now := d.present.labels(o.UID, cmp.Or(o.Pod, o.Last)), d.now()
	known := d.present[o.UID] != nil
	found := d.last.synced == nil && !known
	entries := make([]entry, 0, len(o.Events))
	for _, ev := range o.Events {
		counter := d.metrics.events[ev.Type]
		if counter == nil {
			continue // it only causes an inspection
		}
		counter.Inc()
		d.last.newest++
		ev.Seq, ev.Epoch, ev.Replayed = d.last.newest, d.epoch, found
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

// publish shows the readers what was appended.
func (d *Dispatcher) publish() {
	known := *d.log.state.Load()
	if known.changed = nil; d.last != known {
		d.log.publish(d.last)
	}
}

// admit gives a place in the log to those that wait for one: who subscribed before something
// was sent must not miss it.
func (d *Dispatcher) admit() {
	select {
	case <-d.starting.Wake():
		d.placeAll()
	default:
	}
}

func (d *Dispatcher) placeAll() {
	for _, s := range d.starting.Take() {
		d.place(s)
	}
}

// place gives a subscriber its place, and the present state if it needs that.
func (d *Dispatcher) place(s *Subscription) {
	p := place{seq: d.last.newest, at: d.last.newest, mark: d.last.mark}
	if _, known := d.subscribers[s]; known {
		p.gap, p.missed = pleg.HistoryTooShort, p.seq-s.at.Load()
	} else {
		d.subscribers[s] = struct{}{}
		s.label, s.number = d.labels.assign(s.options.Name)
		if p.gap, p.missed = d.missing(s.options.After); p.gap == "" && s.options.After != (pleg.Position{}) {
			p.at = s.options.After.Seq
		}
	}
	if p.gap != "" || s.options.Replay {
		if d.pods == nil {
			d.pods = make([]*presentPod, 0, len(d.present))
			for _, pod := range d.present {
				d.pods = append(d.pods, pod)
			}
		}
		p.pods = d.pods
	}
	s.at.Store(p.at) // until the reader takes it
	s.places <- p
}

// missing says why a subscriber cannot resume after a position, and how much it misses; "" if
// it can.
func (d *Dispatcher) missing(after pleg.Position) (gap string, missed uint64) {
	switch {
	case after == pleg.Position{}:
		return "", 0
	case after.Epoch != d.epoch || after.Seq > d.last.newest:
		return pleg.OtherEpoch, 0
	case after.Seq < d.last.newest && d.log.at(after.Seq+1) == nil:
		return pleg.HistoryTooShort, d.last.newest - after.Seq
	}
	return "", 0
}

// leave removes the subscribers that called Close.
func (d *Dispatcher) leave() {
	d.placeAll() // one that leaves may have joined a moment ago
	for _, s := range d.leaving.Take() {
		if _, known := d.subscribers[s]; known {
			delete(d.subscribers, s)
			d.labels.release(s.options.Name, s.label, s.number)
		}
	}
}

// stop publishes the last state, which ends the subscriptions, and waits for their pumps.
func (d *Dispatcher) stop() {
	d.last.stopped = true
	d.publish()
	for _, s := range d.starting.Close() {
		d.place(s)
	}
	d.leaving.Close()
	close(d.stopping)
	for s := range d.subscribers {
		if p := s.pump.Load(); p != nil {
			<-p.ended
		}
	}
	close(d.stopped)
}

func (d *Dispatcher) warnSlow() {
	for s := range d.subscribers {
		if lag := s.Lag(); lag.Age > d.slowAfter && !s.warned {
			s.warned = true
			d.logger.Warn("subscriber is not reading", "subscriber", s.label, "age", lag.Age, "events", lag.Events)
		}
	}
}

// now is the time since the dispatcher was created. It is cheaper to store for each
// event than a time.Time.
func (d *Dispatcher) now() time.Duration { return time.Since(d.began) }
