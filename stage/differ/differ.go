// Package differ is the second stage: it keeps the old and the current record of
// every pod and computes what changed between two observations.
//
// A record decides which change comes next (record.go), the schedule decides when
// it goes to the inspector (schedule.go, quarantine.go). What CRI events announced
// and what was removed are kept apart from the records (announcements.go,
// tombstones.go).
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
	// listings numbers the listings; listedAt is the time of the newest, appliedAt is
	// when it was applied.
	listings            uint64
	listedAt, appliedAt time.Time

	schedule      schedule
	coverage      coverage
	announcements announcements
	tombstones    tombstones
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
		tombstones:    newTombstones(),
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
// then closes these, and returns once settled is closed too. Observations are
// ordered by their time: an older one never replaces a newer one.
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

// applyListing compares a listing of all pods with the records.
func (d *Differ) applyListing(l stage.Listing) {
	d.takeRequests()
	d.markBehind()
	now := time.Now()
	d.announcements.count(now)
	d.announcements.unlisted.expire(now, nil)
	d.announcements.newPods = 0
	d.tombstones.containers.expire(now, nil)
	d.listings++
	d.pending = d.pending[:0]
	present := 0
	var count census
	for _, pod := range l.Pods {
		if pod = d.tombstones.without(pod, now); pod == nil || d.tombstones.grave(pod.UID).at.After(l.At) && d.records[pod.UID] == nil {
			continue
		}
		rec := d.recordOf(pod.UID)
		if rec.listing == d.listings {
			d.metrics.duplicates.Inc()
			d.log.Warn("skipped pod listed twice", "podUID", pod.UID)
			continue
		}
		rec.listing = d.listings
		present++
		count.add(pod)
		d.compareListed(rec, pod, &l, now)
	}
	if present < len(d.records) {
		for _, rec := range d.records {
			if rec.listing != d.listings {
				d.compareListed(rec, nil, &l, now)
			}
		}
	}
	d.schedule.flush()
	d.metrics.publish(count)
	clear(d.requested)
	d.tombstones.listed(l.At)
	// What the listing covers is known now, before any inspection: a hung
	// inspection delays no GetNewerThan of another pod.
	d.cache.Observe(l.At, d.pending)
	covers := l.At.Sub(d.listedAt)
	d.listedAt, d.appliedAt = l.At, now
	d.coverage.listed(l.At, d.pending)
	d.dead.listingApplied(now, l.StreamUp && !l.StreamBroke)
	if d.announcements.judge(l, covers) {
		d.lister.RelistSoon() // to see whether the events come
	}
	d.markCurrent()
	d.awaitChanges(l)
}

// compareListed compares what a listing has of one pod, nil for nothing.
func (d *Differ) compareListed(rec *record, pod *pleg.Pod, l *stage.Listing, now time.Time) {
	if _, ok := d.requested[rec.uid]; ok {
		rec.reinspect = true
	}
	to := observation{pod: pod, at: l.At, asOf: l.At}
	doubtful := rec.mayBeOlder(&to, rec.received)
	switch {
	case doubtful:
		d.lister.RelistSoon()
	case rec.current.at.After(l.At): // a pod seen after the listing began need not be in it
		if doubtful = d.tells(rec, &stage.Observation{UID: rec.uid, At: l.At, Pod: pod}, now); !doubtful {
			rec.confirm(l.At)
		} else if now.Sub(d.appliedAt) < time.Millisecond {
			d.lister.RelistSoon() // the list of the pod alone has just failed: no hot loop
		} else {
			d.pods.RequestRelist(rec.uid)
		}
	default:
		if l.StreamUp {
			d.announcements.expect(events(rec.current.pod, pod, l.At), now, rec.current.pod, l.StreamBroke)
			if rec.current.news && same(rec.current.pod, pod) {
				d.announcements.confirmed = true
			}
		}
		if l.StreamUp && rec.old == nil && pod != nil && pod.Labels == nil && len(pod.Sandboxes) == 0 {
			d.lister.RelistSoon() // its sandbox, which has the labels, is listed a moment later
		}
		d.add(rec, to)
	}
	if doubtful {
		d.metrics.stale.Inc()
	}
	if doubtful || rec.state != stateSettled {
		d.pending = append(d.pending, rec.nameOf(pod))
	}
}

func (d *Differ) recordOf(uid pleg.PodUID) *record {
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

// add adds a newer observation to a record and schedules the change if there is
// one and none is in flight. A container that has run unseen makes two steps.
func (d *Differ) add(rec *record, o observation) {
	if had := rec.current.pod; !same(had, o.pod) {
		now := time.Now()
		if pod := d.announcements.starts(had, o.pod, now); pod != nil {
			ran := o
			ran.pod, ran.step, ran.single = pod, true, false
			d.addStep(rec, ran)
			had = pod
		}
		d.podChanged(rec.uid, had, &o, now)
	}
	d.addStep(rec, o)
}

func (d *Differ) addStep(rec *record, o observation) {
	o.news = o.news || o.step && rec.current.news
	if lost := rec.add(o); lost > 0 {
		d.metrics.skipped.Add(float64(lost))
	}
	if rec.superseded() {
		d.supersede(rec)
	}
	if rec.state.inFlight() {
		return
	}
	change, ok := rec.next()
	switch {
	case ok && rec.state == stateQuarantined && needsInspection(change):
		d.schedule.quarantine.hold(rec)
	case ok:
		d.send(rec, change)
	case o.pod == nil:
		d.forget(rec)
	}
}

// podChanged takes an observation that differs from the one before.
func (d *Differ) podChanged(uid pleg.PodUID, had *pleg.Pod, o *observation, now time.Time) {
	d.dead.podChanged(uid, o.pod, now)
	o.news = o.step
	if !o.step {
		d.announcements.compareLists(had, o.pod, now)
	}
	if o.single {
		d.announcements.confirm(events(had, o.pod, o.at), now)
	}
}

// supersede has the inspection of a pod cancelled if it hangs, because the pod is gone.
// If it is only slow, the next listing asks again.
func (d *Differ) supersede(rec *record) {
	d.schedule.known.push(stage.Change{UID: rec.uid, Supersedes: true})
	d.lister.RelistSoon()
}

// send schedules a change.
func (d *Differ) send(rec *record, change stage.Change) {
	if rec.state == stateSettled {
		d.waiting.add(rec)
	}
	change.Initial = d.isInitial(rec)
	rec.send(change)
	d.schedule.add(change)
}

// forget drops the record of a pod that is gone.
func (d *Differ) forget(rec *record) {
	delete(d.records, rec.uid)
	if rec.current.at.After(d.listedAt) {
		d.bury(rec.uid, rec.current)
	}
}

// bury remembers that a pod is gone until the next listing, which comes soon if
// there are too many.
func (d *Differ) bury(uid pleg.PodUID, gone observation) {
	if d.tombstones.buryPod(uid, grave{gone.at, gone.asOf}) {
		d.lister.RelistSoon()
	}
}

// settle moves a record on and compares it at once with what was observed
// meanwhile. After an error the next listing does that.
func (d *Differ) settle(s stage.Settled) {
	rec := d.records[s.UID]
	d.schedule.quarantine.ended(rec)
	defer d.changeEnded(rec, rec.sent.at)
	if s.Err != nil {
		d.coverage.tried(rec.uid)
		d.settleFailed(rec, s)
		d.markCurrent()
		return
	}
	d.metrics.skippedAttempts.Add(float64(skippedAttempts(rec.old, rec.sent.pod)))
	inspected := rec.state == stateInspecting
	rec.succeed()
	if rec.state != stateSettled {
		return // delivered uninspected; the next listing retries
	}
	d.waiting.remove(rec)
	if rec.hang != nil {
		d.schedule.quarantine.release(rec, inspected)
	}
	if rec.isNewer() {
		if change, ok := rec.next(); ok {
			if change.At.After(d.listedAt) {
				d.coverage.settled(rec.uid)
			}
			d.send(rec, change)
			d.schedule.flush()
			d.markCurrent()
			return
		}
		d.cache.Touch(rec.uid, rec.current.asOf)
	}
	d.coverage.reached(rec.uid, rec.current.asOf)
	if rec.current.pod == nil {
		d.forget(rec)
	}
	d.markCurrent()
}

// settleFailed has a failed inspection retried, and delivers what is known if too
// many have failed.
func (d *Differ) settleFailed(rec *record, s stage.Settled) {
	rec.fail()
	q := &d.schedule.quarantine
	switch {
	case s.Superseded || rec.current.pod == nil:
		d.startAgain(rec)
		return
	case s.Hung > 0 || s.Late:
		q.add(rec, s)
		rec.state = stateQuarantined
	case rec.hang != nil:
		q.failedPromptly(rec)
	default:
		d.lister.RelistSoon()
	}
	if change, ok := rec.next(); ok && !needsInspection(change) {
		d.send(rec, change) // what CRI events showed in full
		return
	}
	if d.deliverAfter > 0 && rec.failures >= d.deliverAfter {
		if change, ok := rec.uninspectedChange(); ok {
			d.send(rec, change)
		}
	}
}

// startAgain compares a pod at once although its inspection has failed: what was
// inspected is gone.
func (d *Differ) startAgain(rec *record) {
	if rec.hang != nil {
		d.schedule.quarantine.release(rec, false)
		rec.state = rec.failedState()
	}
	if change, ok := rec.next(); ok { // always: the last inspection failed
		d.send(rec, change)
		d.schedule.flush()
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
		if rec != nil {
			rec.reinspect = true
		} else if len(d.requested) < maxRecent { // a pod that appears is inspected anyway
			d.requested[r.uid] = struct{}{}
		}
	}
}
