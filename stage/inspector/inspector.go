// Package inspector is the third stage: a bounded pool that asks the runtime
// for the status of each changed pod and writes it to the cache.
package inspector

import (
	"context"
	"log/slog"
	"time"

	"github.com/sourcegraph/conc/pool"

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
	Logger         *slog.Logger
	Metrics        instrument.Registry
}

// Inspector owns the pool. The workers take values and give values back to the
// loop, which alone touches the fields below.
type Inspector struct {
	runtime Runtime
	cache   Cache
	bound   int
	fixed   bool
	timeout time.Duration
	log     *slog.Logger
	metrics *metrics

	// good holds the last status that an inspection returned for each pod; it
	// outlives failed inspections, for the IPs and the final statuses in it.
	good     map[pleg.PodUID]*pleg.PodStatus
	inFlight inFlight
	width    width
	// started is when Run began.
	started time.Time
}

// New returns an inspector that is yet to run.
func New(o Options) (*Inspector, error) {
	i := &Inspector{
		runtime: o.Runtime, cache: o.Cache, bound: o.Inspectors, fixed: o.FixedWidth, timeout: o.InspectTimeout,
		width: newWidth(o.Inspectors),
		log:   o.Logger.With("stage", "inspector"),
		good:  make(map[pleg.PodUID]*pleg.PodStatus),
	}
	i.inFlight.started = make(map[pleg.PodUID]time.Time)
	var err error
	i.metrics, err = newMetrics(o.Metrics, i.inFlight.age)
	return i, err
}

// Run inspects the pods of inspect, at most a bounded number at once, and
// settles those of known, which need no inspection, at once. It returns, and
// closes out and settled, when both are closed and every inspection has
// returned. Of each change it writes the cache first, then sends the outcome,
// then settles it. Inspections end with ctx; what they then return is not an
// outcome.
func (i *Inspector) Run(ctx context.Context, inspect, known <-chan stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) error {
	defer close(settled)
	defer close(out)
	workers := pool.New().WithMaxGoroutines(i.bound)
	results := make(chan result)
	i.started = time.Now()
	recount := time.NewTimer(0)
	recount.Stop()
	for inspect != nil || known != nil || i.inFlight.len() > 0 {
		accept := inspect
		if !i.free(recount) {
			accept = nil
		}
		select {
		case change, ok := <-accept:
			if !ok {
				inspect = nil
				continue
			}
			i.begin(ctx, change, workers, results)
		case change, ok := <-known:
			if !ok {
				known = nil
				continue
			}
			i.take(change, out, settled)
		case <-recount.C:
		case r := <-results:
			i.inFlight.end(r.change.UID)
			if r.err == nil && !i.fixed {
				i.width.observe(r.change.Pod, r.took, r.turn)
			}
			i.finish(ctx, r, out)
			settled <- stage.Settled{UID: r.change.UID, Err: r.err}
		}
		i.metrics.inFlight.Set(float64(i.inFlight.len()))
		i.metrics.width.Set(float64(i.width.now))
	}
	// Not deferred: a panic of the loop is to crash, not to wait for a worker.
	workers.Wait()
	return nil
}

// free reports whether an inspector may take a change. If only the width is in
// the way, recount fires when the oldest inspection stops counting for it.
func (i *Inspector) free(recount *time.Timer) bool {
	if n := i.inFlight.len(); n == i.bound || i.fixed || n < i.width.now {
		return n < i.bound
	}
	counting, oldest := i.inFlight.since(time.Now().Add(-stuckAfter))
	if counting < i.width.now {
		return true
	}
	recount.Reset(time.Until(oldest.Add(stuckAfter)))
	return false
}

func (i *Inspector) begin(ctx context.Context, c stage.Change, workers *pool.Pool, results chan<- result) {
	i.inFlight.begin(c.UID)
	var last *pleg.PodStatus
	if !c.Anew {
		last = i.good[c.UID]
	}
	turn := i.width.begin(i.inFlight.len())
	workers.Go(func() {
		r := i.inspect(ctx, c, last)
		r.turn = turn
		results <- r
	})
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
		i.log.WarnContext(ctx, "inspection failed, will be retried at the next relist",
			"podUID", c.UID, "pod", c.Pod.Namespace+"/"+c.Pod.Name, "err", r.err)
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
