// Package dispatcher is the last stage: it numbers the events and fans them out to
// the subscribers. It never waits for a subscriber. It has no stability promise.
package dispatcher

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// recheckAfter is the longest delay until the dispatcher notices that a stalled
// subscriber reads again while no event is published. With a goroutine that waits
// for the subscriber, the dispatcher would wait for that goroutine at each miss.
const recheckAfter = 10 * time.Millisecond

// Options configure a [Dispatcher].
type Options struct {
	// History is the number of events kept for subscribers that resume.
	History int
	// SlowAfter is how long a subscriber may leave an event unread before that is
	// logged; positive.
	SlowAfter time.Duration
	// Status returns the newest good status of a pod, for subscribers that ask for statuses.
	Status  func(pleg.PodUID) *pleg.PodStatus
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Dispatcher owns the subscribers, the history and the present state of the pods
// according to the events.
type Dispatcher struct {
	epoch     string
	began     time.Time // zero of the times in the dispatcher
	slowAfter time.Duration
	status    func(pleg.PodUID) *pleg.PodStatus
	log       *slog.Logger
	metrics   *metrics

	joining *mailbox.Box[*Subscription]
	leaving *mailbox.Box[*Subscription]
	names   atomic.Uint64
	// fed is where a feeder reports that its batch is delivered.
	fed chan *Subscription
	// queries are requests for the figures of the subscribers.
	queries chan chan<- []stats
	// started and stopped are closed when Run begins and ends.
	started, stopped chan struct{}

	seq uint64
	// complete is set by the first mark: the initial state is published.
	complete    bool
	subscribers []*Subscription
	labels      names
	selectors   selectors
	feeders     conc.WaitGroup
	// recheck fires while there are stalled subscribers.
	recheck    *time.Timer
	rechecking bool
	history    *history
	present    present
	// replayed is the present state for the next of many new subscribers; nil if it has
	// changed.
	replayed []past
	// scratch is room for what a new subscriber gets first: subscribers that come by the
	// hundred leave little for the garbage collector.
	scratch []held
}

// New returns a dispatcher that does not run yet.
func New(o Options) (*Dispatcher, error) {
	d := &Dispatcher{
		epoch:     fmt.Sprintf("%016x", rand.Uint64()),
		began:     time.Now(),
		slowAfter: o.SlowAfter,
		status:    o.Status,
		log:       o.Logger.With("stage", "dispatcher"),
		joining:   mailbox.New[*Subscription](),
		leaving:   mailbox.New[*Subscription](),
		fed:       make(chan *Subscription),
		queries:   make(chan chan<- []stats),
		started:   make(chan struct{}),
		stopped:   make(chan struct{}),
		history:   newHistory(o.History),
		present:   make(present),
		labels:    newNames(),
		selectors: make(selectors),
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
	f, err := complete(&o)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", option.Invalid(err))
	}
	if o.Name == "" {
		o.Name = fmt.Sprintf("subscriber-%d", d.names.Add(1))
	}
	s := newSubscription(o, f, d.leaving)
	if o.Statuses {
		s.status = d.status
	}
	if !d.joining.Put(s) {
		return nil, pleg.ErrStopped
	}
	return s, nil
}

// Run publishes the events of every outcome, and the marks behind those that were sent
// before them, until in is closed. It then closes the channels of all subscribers. It
// runs once.
func (d *Dispatcher) Run(in <-chan stage.Outcome, marks <-chan stage.Mark) error {
	close(d.started)
	defer d.closeAll()
	slow := time.NewTicker(d.slowAfter)
	defer slow.Stop()
	d.recheck = time.NewTimer(recheckAfter)
	defer d.recheck.Stop()
	for {
		select {
		case outcome, ok := <-in:
			if !ok || !d.publishAll(outcome, in) {
				return nil
			}
		case mark, ok := <-marks:
			if !ok {
				marks = nil
				continue
			}
			for range len(in) { // what the mark counts on waits there
				d.publishOutcome(<-in)
			}
			d.applyMark(mark)
		case <-d.joining.Wake():
			d.addJoining()
		case <-d.leaving.Wake():
			d.removeLeaving()
		case s := <-d.fed:
			s.finishFeed(len(s.feeding.batch), d.now())
			d.feed(s)
		case reply := <-d.queries:
			reply <- d.stats()
		case <-d.recheck.C:
			d.checkStalled()
		case <-slow.C:
			d.warnSlow(d.now())
		}
	}
}

// publishAll publishes an outcome and a bounded number of those that wait behind it,
// because the whole select for each costs more than publishing it. It reports whether
// in is still open.
func (d *Dispatcher) publishAll(o stage.Outcome, in <-chan stage.Outcome) bool {
	for taken := 0; ; taken++ {
		d.publishOutcome(o)
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

func (d *Dispatcher) publishOutcome(o stage.Outcome) {
	d.admit()
	d.replayed = nil
	now := d.now()
	labels, known := d.present.labels(o.UID, o.Pod)
	first := d.present[o.UID] == nil
	if known && d.present.isUnlabelled(o.UID) {
		d.resolveLabels(o.UID, labels)
	}
	for _, ev := range o.Events {
		if ev.Type == stage.ContainerChanged {
			continue
		}
		d.seq++
		ev.Seq, ev.Epoch = d.seq, d.epoch
		d.metrics.count(ev.Type)
		d.history.add(past{ev, labels, known})
		d.present.apply(ev)
		d.publish(published{Event: ev, labels: labels, known: known, first: first}, now)
	}
	d.present.settle(o.UID, o.Pod == nil, labels, known)
}

// admit adds the subscribers that wait: one that joined before something was sent must
// not miss it.
func (d *Dispatcher) admit() {
	select {
	case <-d.joining.Wake():
		d.addJoining()
	default:
	}
}

// published is an event that has just got its number.
type published struct {
	pleg.Event
	labels map[string]string
	known  bool // whether the labels are
	first  bool // nothing of the pod was published before its outcome
}

func (d *Dispatcher) publish(p published, now time.Duration) {
	for _, s := range d.subscribers {
		ev := &p.Event
		unlabelled := !p.known && s.filter.Selector != nil
		if !s.filter.WantsEvent(ev) || !unlabelled && !s.filter.WantsLabels(p.labels) {
			continue
		}
		if p.first && s.syncing && s.replay {
			replayed := *ev
			replayed.Replayed = true
			ev = &replayed
		}
		if s.stalled() {
			d.feed(s) // it may read again; what it missed goes first
		}
		if d.hold(s, ev, unlabelled) || s.offer(ev, now) {
			continue
		}
		if !s.warnedFull {
			s.warnedFull = true
			d.log.Warn("subscriber buffer full, discarding events",
				"subscriber", s.label, "buffer", s.buffer, "repair", "one PodSync for each pod")
		}
		d.metrics.discarded.Inc()
		d.feed(s)
	}
}

// now is the time since the dispatcher was created. It is cheaper to store for each
// event than a time.Time.
func (d *Dispatcher) now() time.Duration { return time.Since(d.began) }
