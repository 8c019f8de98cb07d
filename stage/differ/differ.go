// Package differ is the second stage: it keeps the old and the current record
// of every pod and computes what changed between two observations.
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
	Cache Cache
	// Retry is called when something waits for the next listing, which then
	// should not be long in coming: an inspection that has failed, a request for
	// one, much that only a listing clears, a change that an event may be about
	// to announce. It must not block.
	Retry func()
	// Doubt is called with true when a stream of events that is up has failed to
	// announce changes, and with false when it may be relied on again. It must
	// not block.
	Doubt func(doubted bool)
	// DeliverAfterFailures is the number of failed inspections of a pod after
	// which its events are delivered uninspected; 0 for never.
	DeliverAfterFailures int
	// RelistPeriod is the first wait of a pod whose inspection keeps hanging,
	// MaxQuarantine the longest; both positive.
	RelistPeriod  time.Duration
	MaxQuarantine time.Duration
	Logger        *slog.Logger
	Metrics       instrument.Registry
}

// Differ owns the records.
type Differ struct {
	cache    Cache
	retry    func()
	doubt    func(bool)
	deliver  int // after so many failures
	log      *slog.Logger
	metrics  *metrics
	requests *mailbox.Box[request]

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

	// removed are the containers that an event has shown to be removed; gone is
	// when a pod was found gone by something newer than the last listing.
	removed *recent[pleg.ContainerID]
	gone    map[pleg.PodUID]time.Time
	missed  missed
	// unlisted are the containers that a list no longer had.
	unlisted *recent[pleg.ContainerID]
	trust    trust
	// told is the number of pods since the last listing that are known by an
	// event alone.
	told int

	quarantine quarantine

	// pending and later are scratch space of apply, kept from one listing to
	// the next.
	pending []pleg.PodUID
	later   []stage.Change
}

// removedFor is how long a container is held to be removed although a list has
// it; containerd lists a sandbox for up to 4 ms after its last event.
const removedFor = 10 * time.Second

// New returns a differ that is yet to run.
func New(o Options) (*Differ, error) {
	m, err := newMetrics(o.Metrics)
	return &Differ{
		cache:      o.Cache,
		retry:      o.Retry,
		doubt:      o.Doubt,
		deliver:    o.DeliverAfterFailures,
		log:        o.Logger.With("stage", "differ"),
		metrics:    m,
		requests:   mailbox.New[request](),
		records:    make(map[pleg.PodUID]*record),
		requested:  make(map[pleg.PodUID]struct{}),
		removed:    newRecent[pleg.ContainerID](removedFor, maxRecent),
		gone:       make(map[pleg.PodUID]time.Time),
		missed:     newMissed(m.missed),
		unlisted:   newRecent[pleg.ContainerID](removedFor, maxRecent),
		quarantine: quarantine{first: o.RelistPeriod, most: o.MaxQuarantine},
	}, err
}

// Run compares every listing and every observation of one pod with the records
// and sends what changed, until both are closed: to inspect what needs an
// inspection, to retry what hung in its last one, to known what needs none. It
// then closes these, and returns once settled is closed too. What arrives is
// ordered by the time at which it was observed: an older observation never
// replaces a newer one.
//
// The inspector is fed and listened to by one select: while it is busy, changes
// wait in a queue, so that neither side ever waits for the other.
func (d *Differ) Run(
	listings <-chan stage.Listing, observations <-chan stage.Observation, settled <-chan stage.Settled,
	inspect, retry, known chan<- stage.Change,
) error {
	d.loop(listings, observations, settled, inspect, retry, known)
	close(inspect)
	close(retry)
	close(known)
	for range settled {
	}
	return nil
}

func (d *Differ) loop(
	listings <-chan stage.Listing, observations <-chan stage.Observation, settled <-chan stage.Settled,
	inspect, retry, known chan<- stage.Change,
) {
	due := d.quarantine.start()
	for listings != nil || observations != nil {
		toInspect, nextToInspect := d.inspect.offer(inspect)
		toRetry, nextRetry := d.offerRetry(retry)
		toKnown, nextKnown := d.known.offer(known)
		select {
		case l, ok := <-listings:
			if !ok {
				listings = nil
				continue
			}
			d.apply(l)
		case o, ok := <-observations:
			if !ok {
				observations = nil
				continue
			}
			d.take(o)
		case s := <-settled:
			d.settle(s)
		case toInspect <- nextToInspect:
			d.inspect.pop()
		case toRetry <- nextRetry:
			d.records[nextRetry.UID].begin(nextRetry)
		case toKnown <- nextKnown:
			d.known.pop()
		case <-due:
			d.retryDue()
		case <-d.requests.Wake():
			d.takeRequests()
		}
		d.metrics.queue.Set(float64(d.inspect.len()))
	}
}

// apply takes a listing of all pods into the records.
func (d *Differ) apply(l stage.Listing) {
	d.takeRequests()
	now := time.Now()
	d.countMissed(now)
	d.removed.expire(now, nil)
	d.unlisted.expire(now, nil)
	d.listings++
	d.told = 0
	d.pending = d.pending[:0]
	present := 0
	var count census
	for _, pod := range l.Pods {
		if pod = d.withoutRemoved(pod, now); pod == nil {
			continue
		}
		if d.gone[pod.UID].After(l.At) {
			continue
		}
		rec := d.record(pod.UID)
		if rec.listing == d.listings {
			d.metrics.duplicates.Inc()
			d.log.Warn("skipped a pod that the runtime listed twice", "podUID", pod.UID)
			continue
		}
		rec.listing = d.listings
		present++
		count.add(pod)
		d.list(rec, pod, l)
	}
	if present < len(d.records) {
		for _, rec := range d.records {
			if rec.listing != d.listings {
				d.list(rec, nil, l)
			}
		}
	}
	d.queueLater()
	d.metrics.publish(count)
	clear(d.requested)
	for uid, at := range d.gone {
		if !at.After(l.At) {
			delete(d.gone, uid)
		}
	}
	// What the listing covers is known now, before any inspection: a pod that
	// hangs keeps nobody else's GetNewerThan waiting.
	d.cache.Observe(l.At, d.pending)
	d.listedAt = l.At
	d.weigh(l)
	d.mark()
}

// mark tells the subscribers how far they are current, if all is settled.
func (d *Differ) mark() {
	if d.unsettled == 0 && !d.listedAt.IsZero() {
		d.known.push(stage.Change{Current: d.listedAt})
	}
}

// list takes what a listing of all pods has of one pod, nil for nothing.
func (d *Differ) list(rec *record, pod *pleg.Pod, l stage.Listing) {
	if _, ok := d.requested[rec.uid]; ok {
		rec.reinspect = true
	}
	// A pod seen after the listing had begun need not be in it.
	if !rec.current.at.After(l.At) {
		if l.Announced {
			d.missed.shown(events(rec.current.pod, pod, l.At), time.Now(), l.Broken)
		}
		d.observe(rec, observation{pod: pod, at: l.At})
	}
	if !rec.settled() {
		d.pending = append(d.pending, rec.uid)
	}
}

func (d *Differ) record(uid pleg.PodUID) *record {
	rec := d.records[uid]
	if rec == nil {
		rec = &record{uid: uid}
		d.records[uid] = rec
		if _, ok := d.requested[uid]; ok {
			rec.reinspect = true
			delete(d.requested, uid)
		}
	}
	return rec
}

// observe takes a newer observation of one pod and queues the change if there
// is one and none is under way.
func (d *Differ) observe(rec *record, o observation) {
	if !o.step {
		d.unlist(rec.current.pod, o.pod)
	}
	rec.observe(o)
	if rec.busy {
		return
	}
	change, ok := rec.next()
	switch {
	case ok && rec.hang != nil && asks(change):
		d.hold(rec)
	case ok:
		d.begin(rec, change)
	case o.pod == nil:
		d.forget(rec)
	}
}

// asks reports whether a change needs an inspection.
func asks(c stage.Change) bool { return c.Pod != nil && c.Status == nil && !c.Uninspected }

// forget drops the record of a pod that is gone.
func (d *Differ) forget(rec *record) {
	delete(d.records, rec.uid)
	if rec.current.at.After(d.listedAt) {
		d.bury(rec.uid, rec.current.at)
	}
}

// begin queues a change. Within one listing, pods that run go before those that
// are dead, so that a cold start tells first of what matters.
func (d *Differ) begin(rec *record, change stage.Change) {
	if rec.settled() {
		d.unsettled++
	}
	rec.begin(change)
	switch {
	case !asks(change):
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

// settle moves a record on and compares it at once with what was observed
// meanwhile. After an error the next listing does that.
func (d *Differ) settle(s stage.Settled) {
	rec := d.records[s.UID]
	if s.Err == nil {
		d.metrics.skippedAttempts.Add(float64(skippedAttempts(rec.old, rec.sent.pod)))
	}
	rec.settle(s.Err)
	if s.Err != nil {
		d.fail(rec, s)
		return
	}
	if rec.failed {
		return // delivered uninspected; the next listing tries again
	}
	d.unsettled--
	d.release(rec)
	if rec.newer() {
		if change, ok := rec.next(); ok {
			d.begin(rec, change)
			d.queueLater()
			return
		}
		d.cache.Touch(rec.uid, rec.current.at)
	}
	if rec.current.pod == nil {
		d.forget(rec)
	}
	d.mark()
}

// fail has a failed inspection tried again, and delivers what is known if too
// many have failed.
func (d *Differ) fail(rec *record, s stage.Settled) {
	switch {
	case s.Hung > 0:
		d.confine(rec, s)
	case rec.hang != nil:
		rec.hang.seen = false
		d.wait(rec, 0) // it hangs no more, whatever it does instead
	default:
		d.retry()
	}
	if d.deliver > 0 && rec.failures >= d.deliver {
		if change, ok := rec.uninspectedChange(); ok {
			d.begin(rec, change)
		}
	}
}
