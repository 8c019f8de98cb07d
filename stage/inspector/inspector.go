// Package inspector is the third stage: a bounded pool that inspects each changed
// pod and writes its status to the cache.
package inspector

import (
	"context"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Runtime inspects one pod. The call ends with its timeout and does not panic.
type Runtime interface {
	PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus, timeout time.Duration) (*pleg.PodStatus, error)
}

// Cache is written before an outcome is passed on.
type Cache interface {
	Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time)
	Delete(uid pleg.PodUID, at time.Time)
	// KeepRemoved keeps the last status of a removed container for a while.
	KeepRemoved(status *pleg.ContainerStatus)
}

// Options configure an [Inspector].
type Options struct {
	Runtime Runtime
	Cache   Cache
	// Inspectors is the number of pods inspected at once; at least 1.
	Inspectors int
	// FixedWidth always uses all inspectors. Otherwise their number follows what
	// the runtime can serve.
	FixedWidth bool
	// InspectTimeout ends an inspection that takes longer; positive.
	InspectTimeout time.Duration
	// HungAfter is the age at which an inspection counts as hung; positive. At
	// most half of the inspectors are left to those.
	HungAfter time.Duration
	Logger    *slog.Logger
	Metrics   instrument.Registry
}

// Inspector owns the pool. The workers take values and give values back to the
// loop, which alone touches the fields below.
type Inspector struct {
	runtime Runtime
	cache   Cache
	bound   int
	// half is the number of inspectors that hung inspections and retries of
	// quarantined pods may take.
	half      int
	fixed     bool
	timeout   time.Duration
	hungAfter time.Duration
	log       *slog.Logger
	metrics   *metrics

	// good holds the last status that an inspection returned for each pod. It
	// survives failed inspections, because of the IPs and final statuses in it.
	good     map[pleg.PodUID]*pleg.PodStatus
	inFlight inFlight
	// workers are bounded by the loop, not by a pool: an abandoned call takes no
	// place in the bound.
	workers conc.WaitGroup
	results chan result
	width   width
	// alarm fires when checkInFlight is due next, which is at checkAt if that is set.
	alarm   *time.Timer
	checkAt time.Time
	// startedAt is when Run began, lastEnd is when the last inspection ended.
	startedAt, lastEnd time.Time
}

// New returns an inspector that does not run yet.
func New(o Options) (*Inspector, error) {
	i := &Inspector{
		runtime: o.Runtime, cache: o.Cache, bound: o.Inspectors, fixed: o.FixedWidth, timeout: o.InspectTimeout,
		width: newWidth(o.Inspectors),
		half:  max(1, o.Inspectors/2), hungAfter: o.HungAfter,
		log:  o.Logger.With("stage", "inspector"),
		good: make(map[pleg.PodUID]*pleg.PodStatus),
	}
	i.inFlight.byPod = make(map[pleg.PodUID]*flight)
	i.results = make(chan result)
	var err error
	i.metrics, err = newMetrics(o.Metrics, i.inFlight.age)
	return i, err
}

// Run inspects the pods of inspect and retry, a bounded number at once, and settles
// those of known, which need no inspection, immediately. The last inspection of
// each pod of retry hung; these pods and hung inspections never take more than half
// of the inspectors. For each change Run writes the cache, then sends the outcome,
// then settles the change. It closes out and settled and returns when the three
// channels are closed and every call of the runtime has returned. Inspections end
// with ctx; what they then return is not an outcome.
func (i *Inspector) Run(
	ctx context.Context, inspect, retry, known <-chan stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled,
) error {
	defer close(settled)
	defer close(out)
	i.startedAt = time.Now()
	i.alarm = time.NewTimer(0)
	i.alarm.Stop()
	for inspect != nil || retry != nil || known != nil || len(i.inFlight.byPod) > 0 {
		accept, again := inspect, retry
		if !i.free() {
			accept, again = nil, nil
		} else if !i.roomForRetry() {
			again = nil
		}
		select {
		case change, ok := <-accept:
			if !ok {
				inspect = nil
				continue
			}
			i.startInspection(ctx, change, out, settled)
		case change, ok := <-again:
			if !ok {
				retry = nil
				continue
			}
			i.startInspection(ctx, change, out, settled)
		case change, ok := <-known:
			if !ok {
				known = nil
				continue
			}
			i.settleKnown(change, out, settled)
		case <-i.alarm.C:
			i.checkInFlight(ctx, out, settled)
		case r := <-i.results:
			i.finishInspection(ctx, r, out, settled)
		}
		i.metrics.publish(&i.inFlight, i.width.now)
	}
	// Not deferred: if the loop panics, the process must crash without waiting.
	i.workers.Wait()
	return nil
}

// free reports whether an inspector is free. Hung inspections do not count for the
// width.
func (i *Inspector) free() bool {
	n := i.inFlight.len()
	return n < i.bound && (i.fixed || n-i.inFlight.hung < i.width.now)
}

func (i *Inspector) startInspection(ctx context.Context, c stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	if f := i.inFlight.byPod[c.UID]; f != nil { // abandoned
		r := f.unreturned()
		r.change = c
		i.settleInspection(ctx, r, out, settled)
		return
	}
	var last *pleg.PodStatus
	if !c.Reinspect {
		last = i.good[c.UID]
	}
	ctx, cancel := context.WithCancelCause(ctx)
	now, timeout := time.Now(), i.allowance(c.Hung)
	f := &flight{change: c, started: now, ends: now.Add(timeout), cancel: cancel}
	i.inFlight.add(f)
	f.turn = i.width.turnOf(i.inFlight.len()-i.inFlight.hung, now.Sub(i.lastEnd))
	i.checkBy(now.Add(i.hungAfter), now)
	i.workers.Go(func() { i.results <- i.inspect(ctx, c, last, timeout) })
}

// finishInspection settles what a worker returned.
func (i *Inspector) finishInspection(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	f := i.inFlight.remove(r.change.UID)
	f.cancel(nil)
	if f.abandoned {
		return // settled when it was abandoned
	}
	i.lastEnd = time.Now()
	if r.err == nil && !i.fixed && !f.hung {
		i.width.measure(r.change.Pod, r.took, f.turn)
	}
	i.settleInspection(ctx, r, out, settled)
}

// settleInspection writes and sends what an inspection returned, and settles it.
func (i *Inspector) settleInspection(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	i.publishResult(ctx, r, out)
	s := stage.Settled{UID: r.change.UID, Err: r.err}
	if r.hung && ctx.Err() == nil { // not cancelled by the end of Run
		s.Hung = r.took
	}
	settled <- s
}

// settleKnown settles a change that needs no inspection.
func (i *Inspector) settleKnown(c stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	switch {
	case !c.Current.IsZero():
		out <- stage.Outcome{Current: c.Current}
		return
	case c.Uninspected:
		out <- stage.Outcome{UID: c.UID, Pod: c.Pod, Events: c.Events}
	case c.Pod == nil:
		i.remove(c, out)
	default:
		i.succeed(c, c.Status, out)
	}
	settled <- stage.Settled{UID: c.UID}
}

// remove settles the change of a pod that is gone.
func (i *Inspector) remove(c stage.Change, out chan<- stage.Outcome) {
	fillExits(c.Events, i.good[c.UID])
	i.keepRemoved(i.good[c.UID], nil)
	delete(i.good, c.UID)
	i.cache.Delete(c.UID, c.At)
	out <- stage.Outcome{UID: c.UID, Events: c.Events}
}

func (i *Inspector) publishResult(ctx context.Context, r result, out chan<- stage.Outcome) {
	if r.err != nil && ctx.Err() != nil {
		return
	}
	c := r.change
	i.metrics.duration.Observe(r.took.Seconds())
	if r.err != nil {
		i.metrics.errors.Inc()
		if !r.hung { // the differ logs a hung one, with the time of its retry
			i.log.WarnContext(ctx, "inspection failed, will be retried",
				"podUID", c.UID, "pod", c.Pod.Namespace+"/"+c.Pod.Name, "err", r.err)
		}
		i.cache.Set(c.UID, nil, r.err, c.At)
		return
	}
	i.succeed(c, r.status, out)
}

// succeed publishes a change whose status is known.
func (i *Inspector) succeed(c stage.Change, got *pleg.PodStatus, out chan<- stage.Outcome) {
	last := i.good[c.UID]
	status := complete(got, last, c.At)
	i.keepRemoved(last, c.Pod)
	i.good[c.UID] = status
	i.cache.Set(c.UID, status, nil, c.At)
	fillExits(c.Events, status)
	events := append(c.Events, networkEvents(c, last, status, i.startedAt)...)
	out <- stage.Outcome{UID: c.UID, Pod: c.Pod, Status: status, Events: events}
}
