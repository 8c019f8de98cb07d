// Package differ is the second stage: it keeps the old and the current record of
// every pod and computes what changed between two observations. It has no stability promise.
//
// Observations come in (listing.go, observe.go) and go to the records (record.go), which
// decide which change comes next; its end moves the record on (settle.go). Each rule has a
// file of its own and no clock: which observation counts (order.go), which events a
// difference makes (diff.go), which pods are unsettled (unsettled.go), when a hung pod is
// inspected again (retry.go), when a dead one is listed alone (dead.go), and what CRI events
// announced (announcements.go).
package differ

import (
	"log/slog"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/mailbox"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Cache learns what a listing covers without an inspection.
type Cache interface {
	// Observe notes a listing that covers every pod except the pending ones. The
	// slice is only lent, the pods may be kept.
	Observe(at time.Time, pending []*pleg.Pod)
	// Touch notes an observation that found the pod as the cache has it.
	Touch(uid pleg.PodUID, at time.Time)
	// KeepRemoved keeps the final status of a container that may be removed before it is
	// inspected.
	KeepRemoved(status *pleg.ContainerStatus)
}

// StreamJudge decides whether the event stream is trusted. Its methods do not
// block.
type StreamJudge interface {
	// ChangesUnannounced reports n changes that the stream failed to announce
	// while it was up.
	ChangesUnannounced(n int)
	// ChangesAnnounced reports a listing that showed nothing unannounced since the one
	// before, and whether since the last report lists confirmed a change that a CRI event
	// announced.
	ChangesAnnounced(confirmed bool)
}

// Lister is the stage before this one. Its methods do not block.
type Lister interface {
	StreamJudge
	// RelistNow requests a list at once.
	RelistNow()
	// RelistSoon requests a list within the relist period: a failed inspection or
	// a request waits for it, or a change that may still be announced, or there is
	// too much that only a listing clears.
	RelistSoon()
}

// PodRelister has single pods listed. It does not block.
type PodRelister interface{ RequestRelist(uid pleg.PodUID) }

// Options configure a [Differ].
type Options struct {
	Cache  Cache
	Lister Lister
	Pods   PodRelister
	// DeliverAfterFailures is the number of failed inspections of a pod after
	// which its events are delivered uninspected; 0 means never.
	DeliverAfterFailures int
	// RelistPeriod is the first wait of a pod whose inspection keeps hanging,
	// MaxQuarantine the longest; both positive.
	RelistPeriod  time.Duration
	MaxQuarantine time.Duration
	Logger        *slog.Logger
	Metrics       instrument.Registry
}

// Outputs are the channels to the stages behind this one.
type Outputs struct {
	// Inspect are pods to inspect. It is closed after the last message to the inspector.
	// Retry are those whose last inspection hung or failed late.
	// Known are changes that need no inspection.
	Inspect, Retry, Known chan<- stage.Change
	// Cancel are pods that are gone while they are inspected.
	Cancel chan<- stage.Cancel
	// Marks go to the dispatcher.
	Marks chan<- stage.Mark
}

// Differ owns the records.
type Differ struct {
	cache        Cache
	lister       Lister
	pods         PodRelister
	deliverAfter int
	log          *slog.Logger
	metrics      *metrics
	requests     *mailbox.Box[request]

	records map[pleg.PodUID]*record
	// requested are the reinspections of pods without a record: the next listing
	// may have them.
	requested map[pleg.PodUID]struct{}
	// listings numbers the listings; listAnswered is when the answer of the newest came.
	listings     uint64
	listAnswered time.Time

	removals      removals
	unsettled     unsettled
	retries       retries
	dead          deadPods
	announcements announcements
	queues        queues
	// pending is scratch space of applyListing.
	pending []*pleg.Pod
}

// request is what is asked for one pod: a reinspection, or only the end of its
// wait in quarantine.
type request struct {
	uid       pleg.PodUID
	reinspect bool
}

// New returns a differ that does not run yet.
func New(o Options) (*Differ, error) {
	m, err := newMetrics(o.Metrics)
	log := o.Logger.With("stage", "differ")
	return &Differ{
		cache:         o.Cache,
		lister:        o.Lister,
		pods:          o.Pods,
		deliverAfter:  o.DeliverAfterFailures,
		log:           log,
		metrics:       m,
		requests:      mailbox.New[request](),
		records:       make(map[pleg.PodUID]*record),
		requested:     make(map[pleg.PodUID]struct{}),
		retries:       retries{firstWait: o.RelistPeriod, maxWait: o.MaxQuarantine, log: log, size: m.quarantined},
		dead:          deadPods{firstWait: o.RelistPeriod * 3 / 2, pods: make(map[pleg.PodUID]*deadPod)},
		announcements: newAnnouncements(o.Lister, m.missed),
	}, err
}

// RequestReinspect requests an inspection of the pod at the next relist, whether or not
// it changed, even if it is quarantined; without a change its subscribers get a
// PodSync. It never blocks and is safe for concurrent use. A pod that the next
// relist does not show is not waited for.
func (d *Differ) RequestReinspect(uid pleg.PodUID) { d.requests.Put(request{uid, true}) }

// RequestRetry ends the wait of a quarantined pod: the next observation of it is
// inspected. It never blocks and is safe for concurrent use.
func (d *Differ) RequestRetry(uid pleg.PodUID) { d.requests.Put(request{uid, false}) }

// Run compares every listing and every observation of one pod with the records
// and sends what changed, until both channels are closed. It then closes Inspect and Marks, and
// returns once settled is closed too.
//
// One select feeds the inspector and listens to it. While the inspector is busy,
// changes wait in the queues, so that neither side ever waits for the other.
func (d *Differ) Run(listings <-chan stage.Listing, observations <-chan stage.Observation, settled <-chan stage.Settled, out Outputs) error {
	d.loop(listings, observations, settled, out)
	close(out.Inspect)
	close(out.Marks)
	for range settled {
	}
	return nil
}

func (d *Differ) loop(listings <-chan stage.Listing, observations <-chan stage.Observation, settled <-chan stage.Settled, out Outputs) {
	q := &d.queues
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for listings != nil || observations != nil {
		now := time.Now()
		stage.SetAlarm(alarm, d.checkDue(now), now)
		toInspect, inspect := q.inspect.offer(out.Inspect)
		toRetry, waited, retry := d.offerRetry(out.Retry, now)
		toKnown, known := q.known.offer(out.Known)
		toCancel, cancel := q.cancel.offer(out.Cancel)
		toMarks, mark := q.marks.offer(out.Marks)
		select {
		case l, ok := <-listings:
			if !ok {
				listings = nil
				continue
			}
			d.applyListing(l, time.Now())
		case o, ok := <-observations:
			if !ok {
				observations = nil
				continue
			}
			d.applyObservation(o, time.Now())
		case done := <-settled:
			d.settle(done, time.Now())
		case toInspect <- inspect:
			q.inspect.pop()
			d.unsettled.accepted(d.records[inspect.UID], time.Now())
		case toRetry <- retry:
			waited.send(retry)
			d.retries.sent(waited, time.Now())
		case toKnown <- known:
			q.known.pop()
		case toCancel <- cancel:
			q.cancel.pop()
		case toMarks <- mark:
			q.marks.pop()
		case <-d.requests.Wake():
			d.takeRequests(time.Now())
		case <-alarm.C:
		}
		d.metrics.queue.Set(float64(q.inspect.len()))
	}
}

// checkDue does what is due at a time, and returns when something will be again.
func (d *Differ) checkDue(now time.Time) time.Time {
	list, nextRetry := d.retries.check(now)
	if list {
		d.lister.RelistSoon()
	}
	yields, nextYield := d.retries.yield(now)
	if yields != nil {
		d.queues.cancel.push(stage.Cancel{UID: yields.uid, Yield: true})
	}
	alone, all, nextDead := d.dead.check(now)
	if all {
		d.lister.RelistNow()
	}
	for _, uid := range alone {
		d.pods.RequestRelist(uid)
	}
	return stage.Earlier(stage.Earlier(nextRetry, nextYield), nextDead)
}

// offerRetry returns the channel and the change of a select case that inspects a
// quarantined pod. The case is off while none is due.
func (d *Differ) offerRetry(to chan<- stage.Change, now time.Time) (chan<- stage.Change, *record, stage.Change) {
	rec, change := d.retries.next(d.queues.inspect.len() > 0, now)
	if rec == nil {
		to = nil
	}
	return to, rec, change
}

func (d *Differ) takeRequests(now time.Time) {
	for _, r := range d.requests.Take() {
		rec := d.records[r.uid]
		if rec != nil && rec.hang != nil {
			d.retries.request(rec, now)
		}
		if !r.reinspect {
			continue
		}
		d.lister.RelistSoon()
		if rec != nil {
			rec.reinspect = true
		}
		if (rec == nil || rec.current.pod == nil) && len(d.requested) < maxRecent { // it may be there already
			d.requested[r.uid] = struct{}{}
		}
	}
}
