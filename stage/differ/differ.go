// Package differ is the second stage: it keeps the old and the current record of
// every pod and computes what changed between two observations.
//
// Observations come in (listing.go, observe.go) and go to the records (records.go). A
// record decides which change comes next (record.go), the schedule decides when it goes
// to the inspector (schedule.go, quarantine.go), and its end moves the record on
// (settle.go). Which observation counts is in order.go. What CRI events announced is kept
// apart from the records (announcements.go).
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
}

// StreamJudge decides whether the event stream is trusted. Its methods do not
// block.
type StreamJudge interface {
	// ChangesUnannounced reports n changes that the stream failed to announce
	// while it was up.
	ChangesUnannounced(n int)
	// ChangesAnnounced reports a listing that showed nothing unannounced since the one
	// before, which began covers earlier, and whether since the last report lists
	// confirmed a change that a CRI event announced.
	ChangesAnnounced(covers time.Duration, confirmed bool)
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
	// Known are pods that count as settled when Run begins.
	Known   []*pleg.Pod
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Differ owns the records.
type Differ struct {
	cache        Cache
	lister       Lister
	deliverAfter int
	log          *slog.Logger
	metrics      *metrics
	requests     *mailbox.Box[request]

	records map[pleg.PodUID]*record
	waiting waiting
	// requested are the reinspections of pods without a record: the next listing
	// may have them.
	requested map[pleg.PodUID]struct{}
	// listings numbers the listings; listedAt is when the newest began, listAnswered when
	// its answer came.
	listings               uint64
	listedAt, listAnswered time.Time
	removals               removals

	schedule      schedule
	coverage      coverage
	announcements announcements
	dead          deadPods
	pods          PodRelister

	// awaited are the listings that callers wait for.
	awaited []awaited
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
	d := &Differ{
		cache:        o.Cache,
		lister:       o.Lister,
		deliverAfter: o.DeliverAfterFailures,
		log:          log,
		metrics:      m,
		requests:     mailbox.New[request](),
		records:      make(map[pleg.PodUID]*record),
		requested:    make(map[pleg.PodUID]struct{}),
		schedule: schedule{quarantine: quarantine{
			firstWait: o.RelistPeriod, maxWait: o.MaxQuarantine, log: log, size: m.quarantined, relistSoon: o.Lister.RelistSoon,
		}},
		announcements: newAnnouncements(o.Lister, m.missed),
		dead:          newDeadPods(o),
		coverage:      newCoverage(),
		pods:          o.Pods,
	}
	for _, pod := range o.Known {
		d.records[pod.UID] = settledRecord(pod)
	}
	return d, err
}

// RequestReinspect has the pod inspected at the next relist, whether or not it
// changed, even if it is quarantined; without a change its subscribers get a
// PodSync. It never blocks and is safe for concurrent use. A pod that the next
// relist does not show is not waited for.
func (d *Differ) RequestReinspect(uid pleg.PodUID) { d.requests.Put(request{uid, true}) }

// RequestRetry ends the wait of a quarantined pod: the next observation of it is
// inspected. It never blocks and is safe for concurrent use.
func (d *Differ) RequestRetry(uid pleg.PodUID) { d.requests.Put(request{uid, false}) }

// Run compares every listing and every observation of one pod with the records
// and sends what changed, until both channels are closed: to inspect what needs an
// inspection, to retry what hung in its last one, to known what needs none. It
// then closes these, and returns once settled is closed too. What the
// runtime shows is joined as order.go says.
//
// One select feeds the inspector and listens to it. While the inspector is busy,
// changes wait in the schedule, so that neither side ever waits for the other.
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
	s := &d.schedule
	waitOver, deadDue := s.quarantine.start(), d.dead.start()
	for listings != nil || observations != nil {
		toInspect, nextToInspect := s.inspect.offer(inspect)
		toRetry, nextRetry := s.offerRetry(retry)
		toKnown, nextKnown := s.known.offer(known)
		select {
		case l, ok := <-listings:
			if !ok {
				listings = nil
				continue
			}
			d.applyListing(l)
		case o, ok := <-observations:
			if !ok {
				observations = nil
				continue
			}
			d.applyObservation(o)
		case done := <-settled:
			d.settle(done)
		case toInspect <- nextToInspect:
			s.inspect.pop()
			d.coverage.accepted(nextToInspect.UID)
		case toRetry <- nextRetry:
			rec := d.records[nextRetry.UID]
			rec.send(nextRetry)
			s.quarantine.sent(rec)
		case toKnown <- nextKnown:
			s.known.pop()
		case <-waitOver:
			s.quarantine.checkDue()
		case now := <-deadDue:
			d.dead.check(now)
		case <-d.requests.Wake():
			d.takeRequests()
		}
		d.metrics.queue.Set(float64(s.inspect.len()))
	}
}

func (d *Differ) takeRequests() {
	for _, r := range d.requests.Take() {
		rec := d.records[r.uid]
		if rec != nil && rec.hang != nil {
			d.schedule.quarantine.request(rec)
		}
		if !r.reinspect {
			continue
		}
		d.lister.RelistSoon()
		if rec != nil && !rec.gone() {
			rec.reinspect = true
		} else if len(d.requested) < maxRecent { // a pod that appears is inspected anyway
			d.requested[r.uid] = struct{}{}
		}
	}
}
