package inspector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// finishInspection writes and sends the result of a worker, and settles the change. An inspection
// that the differ or the end of Run ended is no answer of the runtime: the cache keeps the status
// before.
func (i *Inspector) finishInspection(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	f, c, now := r.flight, r.flight.change, time.Now()
	i.flights.all = slices.DeleteFunc(i.flights.all, func(other *flight) bool { return other == f })
	f.cancel(nil)
	if !r.cancelled {
		i.flights.answer(f, r.took, now)
		i.opts.Ended(c.UID, r.took, now)
		if r.err == nil || r.took < i.flights.hungAfter {
			i.answered = now
		}
	}
	s := stage.Settled{UID: c.UID, How: i.ending(ctx, r), Took: r.took, Err: r.err}
	switch {
	case s.How == stage.Committed:
		i.metrics.duration.Observe(r.took.Seconds())
		i.sayWhenKnown(ctx, i.succeed(c, r.status, s, now), out, settled)
		return
	case s.How == stage.Superseded, ctx.Err() != nil, r.cancelled && f.cut:
	default:
		i.metrics.duration.Observe(r.took.Seconds())
		i.fail(ctx, r)
	}
	settled <- s
	if s.How == stage.FailedHung || s.How == stage.FailedLate {
		settled <- stage.Settled{} // State shows the inspection until the differ quarantines the pod
	}
}

// ending returns how an inspection ended.
func (i *Inspector) ending(ctx context.Context, r result) stage.Ending {
	f := r.flight
	switch {
	case r.err == nil:
		return stage.Committed
	case ctx.Err() != nil:
		return stage.Failed // the end of Run
	case r.cancelled && f.superseded:
		return stage.Superseded
	case r.cancelled && (f.overtaken || r.took >= f.timeout):
		return stage.FailedHung
	case r.cancelled || r.took >= i.flights.hungAfter:
		return stage.FailedLate
	}
	return stage.Failed
}

// succeed writes a status to the cache, and returns the events to publish.
func (i *Inspector) succeed(c stage.Change, got *pleg.PodStatus, s stage.Settled, now time.Time) unsaid {
	last, before := i.good[c.UID], i.contradicted[c.UID]
	status := complete(c, got, last)
	if i.compare(c.Pod, status, now) {
		s.How = stage.Contradicted
	}
	i.keepRemoved(last, status)
	i.good[c.UID] = status
	delete(i.failing, c.UID)
	i.opts.Cache.Set(c.UID, status, nil, c.At)
	return unsaid{
		outcome: stage.Outcome{UID: c.UID, Pod: c.Pod, Status: status, Events: append(c.Events, i.corrections(c, before, last, status)...)},
		network: networkEvents(c, last, status, i.startedAt), status: status, last: last, settled: s,
	}
}

// fail publishes the error of an inspection.
func (i *Inspector) fail(ctx context.Context, r result) {
	c := r.flight.change
	i.metrics.errors.Inc()
	if !r.cancelled && !i.failing[c.UID] { // the differ logs a hung inspection, with the time of its retry
		i.failing[c.UID] = true
		i.log.WarnContext(ctx, "inspection failed, will be retried",
			"podUID", c.UID, "pod", c.Pod.Namespace+"/"+c.Pod.Name, "err", r.err)
	}
	i.opts.Cache.Set(c.UID, nil, r.err, c.At)
}

// remove settles the change of a pod that is gone.
func (i *Inspector) remove(ctx context.Context, c stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	last := i.good[c.UID]
	i.keepRemoved(last, nil)
	delete(i.good, c.UID)
	delete(i.failing, c.UID)
	delete(i.contradicted, c.UID)
	i.opts.Cache.Delete(c.UID, c.At)
	i.sayWhenKnown(ctx, unsaid{
		outcome: stage.Outcome{UID: c.UID, Last: c.Last, Events: c.Events}, status: last,
		settled: stage.Settled{UID: c.UID, How: stage.Committed},
	}, out, settled)
}

// cancelInspection ends an inspection whose pod is gone, or that hangs while a request for the pod
// comes.
func (i *Inspector) cancelInspection(c stage.Cancel, now time.Time) {
	f, s := i.flights.find(c.UID), &i.flights
	switch {
	case f == nil || f.superseded: // each list reports it
	case c.Gone:
		f.superseded = true
		s.cancel(f, now, fmt.Errorf("the pod is gone, cancelled after %v", f.age(now).Round(time.Millisecond)))
	case f.over(now):
	case f.hung(now, s.hungAfter) || f.age(now) >= max(c.After, s.hungAfter):
		f.cut = true
		s.cancel(f, now, fmt.Errorf("cancelled after %v, on request", f.age(now).Round(time.Millisecond)))
	}
}
