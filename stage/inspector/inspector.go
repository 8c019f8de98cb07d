// Package inspector is the third stage: a bounded pool that asks the runtime
// for the status of each changed pod and writes it to the cache.
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

// Runtime is the part of [pleg.Runtime] that the inspector needs.
type Runtime interface {
	PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error)
}

// Cache is where the inspector writes before it passes an outcome on.
type Cache interface {
	Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time)
	Delete(uid pleg.PodUID, at time.Time)
	// KeepRemoved keeps the last status of a container that is gone for a while.
	KeepRemoved(status *pleg.ContainerStatus)
}

// Options configure an [Inspector].
type Options struct {
	Runtime Runtime
	Cache   Cache
	// Inspectors is the number of pods inspected at once; at least 1.
	Inspectors int
	// FixedWidth always uses all inspectors; otherwise their number follows
	// what the runtime can serve.
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
	// half is how many of the bound may be taken by inspections that hang, and by
	// those of pods whose last one did.
	half      int
	fixed     bool
	timeout   time.Duration
	hungAfter time.Duration
	log       *slog.Logger
	metrics   *metrics

	// good holds the last status that an inspection returned for each pod; it
	// outlives failed inspections, for the IPs and the final statuses in it.
	good     map[pleg.PodUID]*pleg.PodStatus
	inFlight inFlight
	// workers are bounded by the loop, not by a pool: a call that was abandoned
	// runs on beside as many others as ever.
	workers conc.WaitGroup
	results chan result
	width   width
	// alarm fires when watch is due next, which is at watchAt if that is set.
	alarm   *time.Timer
	watchAt time.Time
	// started is when Run began, ended is when the last inspection did.
	started, ended time.Time
}

// New returns an inspector that is yet to run.
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

// Run inspects the pods of inspect and of retry, at most a bounded number at
// once, and settles those of known, which need no inspection, at once. The pods
// of retry hung when they were inspected last: they and those that hang now
// never take more than half of the inspectors. It returns, and closes out and
// settled, when the three are closed and every call of the runtime has returned.
// Of each change it writes the cache first, then sends the outcome, then settles
// it. Inspections end with ctx; what they then return is not an outcome.
func (i *Inspector) Run(
	ctx context.Context, inspect, retry, known <-chan stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled,
) error {
	defer close(settled)
	defer close(out)
	i.started = time.Now()
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
			i.begin(ctx, change, out, settled)
		case change, ok := <-again:
			if !ok {
				retry = nil
				continue
			}
			i.begin(ctx, change, out, settled)
		case change, ok := <-known:
			if !ok {
				known = nil
				continue
			}
			i.take(change, out, settled)
		case <-i.alarm.C:
			i.watch(ctx, out, settled)
		case r := <-i.results:
			i.end(ctx, r, out, settled)
		}
		i.metrics.publish(&i.inFlight, i.width.now)
	}
	// Not deferred: a panic of the loop is to crash, not to wait for a worker.
	i.workers.Wait()
	return nil
}

// free reports whether an inspector may take a change. One that hangs does not
// count for the width.
func (i *Inspector) free() bool {
	n := i.inFlight.len()
	return n < i.bound && (i.fixed || n-i.inFlight.hung < i.width.now)
}

func (i *Inspector) begin(ctx context.Context, c stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	if f := i.inFlight.byPod[c.UID]; f != nil { // abandoned
		r := f.unreturned()
		r.change = c
		i.conclude(ctx, r, out, settled)
		return
	}
	var last *pleg.PodStatus
	if !c.Anew {
		last = i.good[c.UID]
	}
	ctx, cancel := context.WithCancelCause(ctx)
	now, timeout := time.Now(), i.allowance(c.Hung)
	f := &flight{change: c, started: now, ends: now.Add(timeout), cancel: cancel}
	i.inFlight.begin(f)
	f.turn = i.width.begin(i.inFlight.len()-i.inFlight.hung, now.Sub(i.ended))
	i.watchBy(now.Add(i.hungAfter), now)
	i.workers.Go(func() { i.results <- i.inspect(ctx, c, last, timeout) })
}

// end takes what a worker returned.
func (i *Inspector) end(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	f := i.inFlight.end(r.change.UID)
	f.cancel(nil)
	if f.abandoned {
		return // settled long ago
	}
	i.ended = time.Now()
	if r.err == nil && !i.fixed && !f.hung {
		i.width.observe(r.change.Pod, r.took, f.turn)
	}
	i.conclude(ctx, r, out, settled)
}

// conclude settles an inspection.
func (i *Inspector) conclude(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	i.finish(ctx, r, out)
	s := stage.Settled{UID: r.change.UID, Err: r.err}
	if r.hung && ctx.Err() == nil { // else it was the end of Run that broke it off
		s.Hung = r.took
	}
	settled <- s
}

// take settles what needs no inspection.
func (i *Inspector) take(c stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) {
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

// remove settles the change of a pod that is gone: there is nothing to ask.
func (i *Inspector) remove(c stage.Change, out chan<- stage.Outcome) {
	fillExits(c.Events, i.good[c.UID])
	i.keepRemoved(i.good[c.UID], nil)
	delete(i.good, c.UID)
	i.cache.Delete(c.UID, c.At)
	out <- stage.Outcome{UID: c.UID, Events: c.Events}
}

func (i *Inspector) finish(ctx context.Context, r result, out chan<- stage.Outcome) {
	if r.err != nil && ctx.Err() != nil {
		return
	}
	c := r.change
	i.metrics.duration.Observe(r.took.Seconds())
	if r.err != nil {
		i.metrics.errors.Inc()
		if !r.hung { // else the differ says when it will be
			i.log.WarnContext(ctx, "inspection failed, will be retried at the next relist",
				"podUID", c.UID, "pod", c.Pod.Namespace+"/"+c.Pod.Name, "err", r.err)
		}
		i.cache.Set(c.UID, nil, r.err, c.At)
		return
	}
	i.succeed(c, r.status, out)
}

// succeed settles a change whose status is known.
func (i *Inspector) succeed(c stage.Change, got *pleg.PodStatus, out chan<- stage.Outcome) {
	last := i.good[c.UID]
	status := complete(got, last, c.At)
	i.keepRemoved(last, c.Pod)
	i.good[c.UID] = status
	i.cache.Set(c.UID, status, nil, c.At)
	fillExits(c.Events, status)
	events := append(c.Events, networkEvents(c, last, status, i.started)...)
	out <- stage.Outcome{UID: c.UID, Pod: c.Pod, Status: status, Events: events}
}
