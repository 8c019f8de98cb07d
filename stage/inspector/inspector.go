// Package inspector is the third stage: a bounded pool that inspects each changed
// pod and writes its status to the cache. It may change in any version.
package inspector

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// Runtime inspects one pod. The call does not panic, and returns soon after its timeout.
type Runtime interface {
	PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus, timeout time.Duration) (*pleg.PodStatus, error)
}

// Cache is written before an outcome is passed on.
type Cache interface {
	Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time)
	Delete(uid pleg.PodUID, at time.Time)
	// KeepRemoved keeps the last status of a removed container for a while.
	KeepRemoved(status *pleg.ContainerStatus)
	// GetRemoved returns such a status, or nil.
	GetRemoved(id pleg.ContainerID) *pleg.ContainerStatus
	// AwaitRemoved returns a channel that is closed when GetRemoved may know more; nil if it never will.
	AwaitRemoved(id pleg.ContainerID) <-chan struct{}
}

// Options configure an [Inspector].
type Options struct {
	Runtime Runtime
	Cache   Cache
	// Inspectors is the number of pods inspected at once, and also the number of extra slots while
	// inspections hang; at least 1.
	Inspectors int
	// InspectTimeout ends an inspection that takes longer; positive.
	InspectTimeout time.Duration
	// HungAfter is the age at which an inspection that was overtaken counts as hung;
	// positive.
	HungAfter time.Duration
	// Ended is called with each inspection that ended by itself. It does not block.
	Ended   func(uid pleg.PodUID, took time.Duration, at time.Time)
	Logger  *slog.Logger
	Metrics instrument.Registry
}

// Inspector owns the pool. The workers take values and give values back to the
// loop, which alone touches the fields below.
type Inspector struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	// state is published by the loop.
	state atomic.Pointer[State]

	// good holds the last status that an inspection returned for each pod. It
	// survives failed inspections, because of the IPs and final statuses in it.
	good map[pleg.PodUID]*pleg.PodStatus
	// failing are the pods whose failure was logged.
	failing map[pleg.PodUID]bool
	// contradicted are the pods whose last status contradicts its list.
	contradicted map[pleg.PodUID]contradicted
	flights      flights
	workers      conc.WaitGroup // bounded by the flights, and one for each change that waits
	results      chan result
	// waiting is how many changes wait for the events of their containers' ends, at most one of each
	// pod. Each comes back by told.
	waiting int
	told    chan unsaid
	// startedAt is the time at which Run began, answered is the value of State.Answered.
	startedAt, answered time.Time
}

// New returns an inspector that does not run yet.
func New(o Options) (*Inspector, error) {
	i := &Inspector{
		opts: o, log: o.Logger.With("stage", "inspector"),
		good:    make(map[pleg.PodUID]*pleg.PodStatus),
		failing: make(map[pleg.PodUID]bool), contradicted: make(map[pleg.PodUID]contradicted),
		flights: flights{slots: o.Inspectors, hungAfter: o.HungAfter},
		results: make(chan result), told: make(chan unsaid),
	}
	i.state.Store(&State{})
	var err error
	i.metrics, err = newMetrics(o.Metrics, i.oldest)
	return i, err
}

// Inputs are the channels from the differ.
type Inputs struct {
	// Inspect and Retry are pods to inspect. Inspect is closed once nothing more comes on any of
	// the channels. Changes from Retry take at most half of the slots. Late is a pod whose change was
	// found after the last one was accepted: a slot is kept for it.
	Inspect, Retry, Late <-chan stage.Change
	// Gone are pods that need no inspection.
	Gone   <-chan stage.Change
	Cancel <-chan stage.Cancel
}

// Run inspects pods, a bounded number at once, and immediately settles pods that are gone. For each
// change Run writes the cache, then sends the outcome, then settles the change. It closes out and
// settled and returns when Inspect is closed and every call of the runtime has returned.
// Inspections end with ctx; their results then are no outcomes.
func (i *Inspector) Run(ctx context.Context, in Inputs, out chan<- stage.Outcome, settled chan<- stage.Settled) error {
	defer close(settled)
	defer close(out)
	i.startedAt = time.Now()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for in.Inspect != nil || len(i.flights.all) > 0 || i.waiting > 0 {
		now := time.Now()
		p := i.flights.next(now)
		if p.cancel != nil {
			i.flights.makeRoom(p.cancel, now)
			continue
		}
		stage.SetAlarm(alarm, stage.Earlier(p.again, i.publish(now, settled)), now)
		accept, again, late := in.Inspect, in.Retry, in.Late
		if !p.begin {
			accept = nil
		}
		if !p.retry {
			again = nil
		}
		if !p.late {
			late = nil
		}
		select {
		case change, ok := <-accept:
			if !ok {
				in.Inspect = nil
				continue
			}
			i.startInspection(ctx, change)
		case change := <-again:
			i.startInspection(ctx, change)
		case change := <-late:
			i.startInspection(ctx, change)
		case change := <-in.Gone:
			i.remove(ctx, change, out, settled)
		case c := <-in.Cancel:
			i.cancelInspection(c, time.Now())
		case r := <-i.results:
			i.finishInspection(ctx, r, out, settled)
		case u := <-i.told:
			i.waiting--
			i.say(u, out, settled)
		case <-alarm.C: // the plan is another one now
		}
	}
	i.publish(time.Now(), settled)
	// Not deferred: if the loop panics, the process must crash without waiting.
	i.workers.Wait()
	return nil
}

func (i *Inspector) startInspection(ctx context.Context, c stage.Change) {
	var last *pleg.PodStatus
	if !c.Reinspect {
		last = i.good[c.UID]
	}
	ctx, cancel := context.WithCancelCause(ctx)
	now, timeout := time.Now(), i.opts.InspectTimeout
	if c.Timeout > 0 {
		timeout = min(timeout, c.Timeout)
	}
	f := &flight{change: c, started: now, ends: now.Add(timeout), timeout: timeout, cancel: cancel}
	i.flights.add(f)
	i.workers.Go(func() { i.results <- i.inspect(ctx, f, last) })
}

type result struct {
	flight *flight
	status *pleg.PodStatus
	err    error
	took   time.Duration
	// cancelled is set if err came after the context had ended.
	cancelled bool
}

// inspect runs on a worker: it reads only fields that never change.
func (i *Inspector) inspect(ctx context.Context, f *flight, last *pleg.PodStatus) result {
	start := time.Now()
	status, err := i.opts.Runtime.PodStatus(ctx, f.change.Pod, last, f.timeout)
	r := result{flight: f, status: status, err: err, took: time.Since(start)}
	r.cancelled = err != nil && (ctx.Err() != nil || r.took >= f.timeout)
	return r
}
