// Package dispatcher is the last stage: it numbers the events and fans them out
// to the subscribers, none of which it ever waits for.
package dispatcher

import (
	"errors"
	"log/slog"
	"slices"

	"github.com/sourcegraph/conc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// ErrStopped is returned by [Dispatcher.Subscribe] once the pipeline has ended.
var ErrStopped = errors.New("the pipeline has stopped")

// Options configure a [Dispatcher].
type Options struct {
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Dispatcher owns the subscribers.
type Dispatcher struct {
	log     *slog.Logger
	metrics *metrics

	joining *mailbox.Box[*Subscription]
	leaving *mailbox.Box[*Subscription]
	// repaired is where a feeder says that its subscriber has read again.
	repaired chan *Subscription

	seq         uint64
	subscribers []*Subscription
	feeders     conc.WaitGroup
}

// New returns a dispatcher that is yet to run.
func New(o Options) (*Dispatcher, error) {
	m, err := newMetrics(o.Metrics)
	return &Dispatcher{
		log:      o.Logger.With("stage", "dispatcher"),
		metrics:  m,
		joining:  mailbox.New[*Subscription](),
		leaving:  mailbox.New[*Subscription](),
		repaired: make(chan *Subscription),
	}, err
}

// Subscribe adds a subscriber. It gets every event that the dispatcher takes
// after Subscribe has returned; one that subscribes before Run gets them all.
// It never blocks and is safe for concurrent use. It returns an error if an
// option is bad, and [ErrStopped] once Run has returned.
func (d *Dispatcher) Subscribe(o SubscribeOptions) (*Subscription, error) {
	s, err := newSubscription(o, d.metrics, d.leaving)
	if err != nil {
		return nil, err
	}
	if !d.joining.Put(s) {
		return nil, ErrStopped
	}
	return s, nil
}

// Run publishes the events of every outcome until in is closed. It then closes
// the channels of all subscribers.
func (d *Dispatcher) Run(in <-chan stage.Outcome) error {
	defer d.end()
	for {
		select {
		case outcome, ok := <-in:
			if !ok {
				return nil
			}
			d.join()
			for _, ev := range outcome.Events {
				d.publish(ev)
			}
		case <-d.joining.Wake():
			d.join()
		case <-d.leaving.Wake():
			d.part()
		case s := <-d.repaired:
			d.metrics.repaired.Inc()
			s.inHand = nil
			d.repair(s)
		}
	}
}

// publish gives one event to every subscriber. ContainerChanged ends here: it
// made the pod be inspected, and says nothing a subscriber could act on.
func (d *Dispatcher) publish(ev pleg.Event) {
	if ev.Type == pleg.ContainerChanged {
		return
	}
	d.seq++
	ev.Seq = d.seq
	d.metrics.count(ev.Type)
	for _, s := range d.subscribers {
		if s.offer(ev) {
			continue
		}
		d.metrics.discarded.Inc()
		if !s.warned {
			s.warned = true
			d.log.Warn("a subscriber does not keep up: what it misses is discarded and made good with one PodSync for each pod",
				"subscriber", s.name, "buffer", cap(s.events))
		}
		d.repair(s)
	}
}

// repair has the next PodSync wait for the subscriber to read, unless one does.
func (d *Dispatcher) repair(s *Subscription) {
	if s.inHand != nil || s.missed.len() == 0 {
		return
	}
	s.inHand = s.missed.takeFirst()
	sync := s.inHand.podSync()
	d.feeders.Go(func() { s.feed(sync, d.repaired) })
}

func (d *Dispatcher) join() {
	joined := d.joining.Take()
	if len(joined) == 0 {
		return
	}
	d.subscribers = append(d.subscribers, joined...)
	d.metrics.subscribers.Set(float64(len(d.subscribers)))
}

// part removes the subscribers that called Close.
func (d *Dispatcher) part() {
	d.join()
	for _, s := range d.leaving.Take() {
		i := slices.Index(d.subscribers, s)
		if i < 0 {
			continue
		}
		d.subscribers = slices.Delete(d.subscribers, i, i+1)
		s.end()
	}
	d.metrics.subscribers.Set(float64(len(d.subscribers)))
}

// end closes every channel, those of subscribers that came too late to be
// served among them.
func (d *Dispatcher) end() {
	d.subscribers = append(d.subscribers, d.joining.Close()...)
	d.leaving.Close()
	for _, s := range d.subscribers {
		s.end()
	}
	d.subscribers = nil
	d.metrics.subscribers.Set(0)
	d.feeders.Wait()
}
