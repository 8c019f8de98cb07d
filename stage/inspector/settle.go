package inspector

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// finishInspection settles what a worker returned.
func (i *Inspector) finishInspection(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	f := i.flights.find(r.change.UID)
	i.flights.remove(f)
	f.cancel(nil)
	if !r.cancelled {
		now := time.Now()
		i.flights.answer(f, r.took, now)
		i.observed.ended(r.change.UID, r.took, now)
		if r.err == nil || r.took < i.flights.hungAfter {
			i.answered.Store(&now)
		}
	}
	i.settleInspection(ctx, f, r, out, settled)
}

// cancelOne makes room, as nothing has ended for long.
func (i *Inspector) cancelOne(f *flight, now time.Time) {
	if !f.hung(now, i.flights.hungAfter) {
		i.flights.cancelled++
	}
	i.flights.cancel(f, now, fmt.Errorf("no answer for %v, cancelled as %d inspections wait and none ends",
		f.age(now).Round(time.Millisecond), len(i.flights.all)))
}

// cancelInspection ends an inspection whose pod is gone, or that hangs and that somebody asks
// for.
func (i *Inspector) cancelInspection(c stage.Cancel, now time.Time) {
	f, s := i.flights.find(c.UID), &i.flights
	switch {
	case f == nil || f.superseded: // each list says so
	case c.Gone:
		f.superseded = true
		s.cancel(f, now, fmt.Errorf("the pod is gone, cancelled after %v", f.age(now).Round(time.Millisecond)))
	case f.over(now):
	case f.hung(now, s.hungAfter) || f.age(now) >= max(c.After, s.hungAfter):
		f.cut = true
		s.cancel(f, now, fmt.Errorf("cancelled after %v, on request", f.age(now).Round(time.Millisecond)))
	}
}

// settleInspection writes and sends what an inspection returned, and settles it.
func (i *Inspector) settleInspection(ctx context.Context, f *flight, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	s := stage.Settled{UID: r.change.UID, Took: r.took, Err: r.err, Superseded: r.cancelled && f.superseded}
	i.publishResult(ctx, r, r.cancelled && (f.cut || f.superseded), out)
	switch {
	case r.err == nil || ctx.Err() != nil: // the end of Run has cancelled it
	case r.cancelled && (f.overtaken || r.took >= f.timeout):
		s.Hung = true
	default:
		s.Late = r.cancelled || r.took >= i.flights.hungAfter
	}
	settled <- s
}

// remove settles the change of a pod that is gone.
func (i *Inspector) remove(c stage.Change, out chan<- stage.Outcome) {
	events := i.fillFromStatus(c.Events, i.good[c.UID], nil)
	i.keepRemoved(i.good[c.UID], nil)
	delete(i.good, c.UID)
	delete(i.failing, c.UID)
	i.cache.Delete(c.UID, c.At)
	out <- stage.Outcome{UID: c.UID, Last: c.Last, Events: events}
}

// publishResult publishes what the runtime answered; ended is set if the differ ended the call.
func (i *Inspector) publishResult(ctx context.Context, r result, ended bool, out chan<- stage.Outcome) {
	if r.err != nil && (ctx.Err() != nil || ended) {
		return
	}
	c := r.change
	i.metrics.duration.Observe(r.took.Seconds())
	if r.err != nil {
		i.metrics.errors.Inc()
		if !r.cancelled && !i.failing[c.UID] { // the differ logs a hung one, with the time of its retry
			i.failing[c.UID] = true
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
	status := complete(c, got, last)
	i.keepRemoved(last, status)
	i.good[c.UID] = status
	delete(i.failing, c.UID)
	i.cache.Set(c.UID, status, nil, c.At)
	events := i.fillFromStatus(append(c.Events, corrections(c, last, status)...), status, last)
	events = append(events, networkEvents(c, last, status, i.startedAt)...)
	out <- stage.Outcome{UID: c.UID, Pod: c.Pod, Status: status, Events: events}
}
