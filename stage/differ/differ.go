// Package differ is the second stage: it keeps the old and the current record
// of every pod and computes what changed between two listings.
package differ

import (
	"log/slog"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Cache is told what a listing covers without an inspection.
type Cache interface {
	// Observe notes a listing that covers every pod but the pending ones. The
	// slice is only lent.
	Observe(at time.Time, pending []pleg.PodUID)
	// Touch notes an observation that found the pod as the cache has it.
	Touch(uid pleg.PodUID, at time.Time)
}

// Options configure a [Differ].
type Options struct {
	Cache   Cache
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Differ owns the records.
type Differ struct {
	cache    Cache
	log      *slog.Logger
	metrics  *metrics
	requests *mailbox.Box[pleg.PodUID]

	records map[pleg.PodUID]*record
	// inspect and known hold the changes that the inspector has not taken yet,
	// at most one of each pod in both: those it has to ask the runtime about,
	// and those it has not.
	inspect  queue
	known    queue
	listings uint64
	// listedAt is the time of the newest listing, unsettled the number of
	// records that are not settled.
	listedAt  time.Time
	unsettled int
	// requested are the reinspections of pods without a record: the next
	// listing may have it.
	requested map[pleg.PodUID]struct{}

	// pending and later are scratch space of apply, kept from one listing to
	// the next.
	pending []pleg.PodUID
	later   []stage.Change
}

// New returns a differ that is yet to run.
func New(o Options) (*Differ, error) {
	m, err := newMetrics(o.Metrics)
	return &Differ{
		cache:     o.Cache,
		log:       o.Logger.With("stage", "differ"),
		metrics:   m,
		requests:  mailbox.New[pleg.PodUID](),
		records:   make(map[pleg.PodUID]*record),
		requested: make(map[pleg.PodUID]struct{}),
	}, err
}

// RequestReinspect has the pod inspected anew at the next relist, whether or
// not it changed; without a change its subscribers get a PodSync. It never
// blocks and is safe for concurrent use. A pod that the next relist does not
// show is not waited for.
func (d *Differ) RequestReinspect(uid pleg.PodUID) { d.requests.Put(uid) }

// Run compares every listing with the records and sends what changed, until in
// is closed: to inspect what needs an inspection, to known what needs none. It
// then closes both, and returns once settled is closed too.
//
// The inspector is fed and listened to by one select: while it is busy, changes
// wait in a queue, so that neither side ever waits for the other.
func (d *Differ) Run(in <-chan stage.Listing, settled <-chan stage.Settled, inspect, known chan<- stage.Change) error {
	d.loop(in, settled, inspect, known)
	close(inspect)
	close(known)
	for range settled {
	}
	return nil
}

func (d *Differ) loop(in <-chan stage.Listing, settled <-chan stage.Settled, inspect, known chan<- stage.Change) {
	for {
		toInspect, nextToInspect := d.inspect.offer(inspect)
		toKnown, nextKnown := d.known.offer(known)
		select {
		case listing, ok := <-in:
			if !ok {
				return
			}
			d.apply(listing)
		case s := <-settled:
			d.settle(s)
		case toInspect <- nextToInspect:
			d.inspect.pop()
		case toKnown <- nextKnown:
			d.known.pop()
		case <-d.requests.Wake():
			d.takeRequests()
		}
		d.metrics.queue.Set(float64(d.inspect.len()))
	}
}

// apply takes a listing of all pods into the records.
func (d *Differ) apply(l stage.Listing) {
	d.takeRequests()
	d.listings++
	d.pending = d.pending[:0]
	present := 0
	var count census
	for _, pod := range l.Pods {
		rec := d.records[pod.UID]
		if rec == nil {
			rec = &record{uid: pod.UID}
			d.records[pod.UID] = rec
		}
		if rec.listing == d.listings {
			d.metrics.duplicates.Inc()
			d.log.Warn("skipped a pod that the runtime listed twice", "podUID", pod.UID)
			continue
		}
		rec.listing = d.listings
		present++
		count.add(pod)
		d.observe(rec, pod, l.At)
	}
	if present < len(d.records) {
		for _, rec := range d.records {
			if rec.listing != d.listings {
				d.observe(rec, nil, l.At)
			}
		}
	}
	d.queueLater()
	d.metrics.publish(count)
	clear(d.requested)
	// What the listing covers is known now, before any inspection: a pod that
	// hangs keeps nobody else's GetNewerThan waiting.
	d.cache.Observe(l.At, d.pending)
	d.listedAt = l.At
	d.mark()
}

// mark tells the subscribers how far they are current, if all is settled.
func (d *Differ) mark() {
	if d.unsettled == 0 {
		d.known.push(stage.Change{Current: d.listedAt})
	}
}

// observe takes a new observation of one pod, nil for gone, and queues the
// change if there is one.
func (d *Differ) observe(rec *record, pod *pleg.Pod, at time.Time) {
	if _, ok := d.requested[rec.uid]; ok {
		rec.reinspect = true
	}
	rec.current, rec.at = pod, at
	if !rec.busy {
		change, ok := rec.next()
		if !ok {
			if pod == nil {
				delete(d.records, rec.uid)
			}
			return
		}
		d.begin(rec, change)
	}
	d.pending = append(d.pending, rec.uid)
}

// begin queues a change. Within one listing, pods that run go before those that
// are dead, so that a cold start tells first of what matters.
func (d *Differ) begin(rec *record, change stage.Change) {
	if rec.settled() {
		d.unsettled++
	}
	rec.begin(change)
	switch {
	case change.Pod == nil:
		d.known.push(change)
	case change.Pod.Running():
		d.inspect.push(change)
	default:
		d.later = append(d.later, change)
	}
}

// queueLater queues the changes of pods that are dead.
func (d *Differ) queueLater() {
	d.inspect.push(d.later...)
	clear(d.later)
	d.later = d.later[:0]
}

// settle moves a record on and compares it at once with what was listed
// meanwhile. After an error the next listing does that.
func (d *Differ) settle(s stage.Settled) {
	rec := d.records[s.UID]
	rec.settle(s.Err)
	if s.Err != nil {
		return
	}
	d.unsettled--
	if rec.at.After(rec.sentAt) {
		if change, ok := rec.next(); ok {
			d.begin(rec, change)
			d.queueLater()
			return
		}
		d.cache.Touch(rec.uid, rec.at)
	}
	if rec.current == nil {
		delete(d.records, rec.uid)
	}
	d.mark()
}

func (d *Differ) takeRequests() {
	for _, uid := range d.requests.Take() {
		if rec := d.records[uid]; rec != nil {
			rec.reinspect = true
		} else {
			d.requested[uid] = struct{}{}
		}
	}
}
