package inspector

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// finishInspection settles what a worker returned.
func (i *Inspector) finishInspection(ctx context.Context, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	full := i.full() || i.unproven(time.Now())
	f := i.inFlight.remove(r.change.UID)
	f.cancel(nil)
	if f.abandoned {
		return // settled when it was abandoned
	}
	i.lastEnd = time.Now()
	if !r.cancelled {
		i.learn(f, r, full)
	}
	i.settleInspection(ctx, f, r, out, settled)
	i.review(ctx, out, settled)
}

// learn updates the pace, the width and the older inspections after one has ended by
// itself. full: no other could begin before that.
func (i *Inspector) learn(f *flight, r result, full bool) {
	now := i.lastEnd
	i.pace.answer(now)
	i.inFlight.overtake(f, r.took, now)
	if r.err == nil || r.took < i.hungAfter {
		i.answered.Store(&now)
	}
	if r.err != nil {
		return
	}
	i.pace.succeed(r.took)
	i.pace.served(r.took, now, full)
	if !i.fixed && !f.lent {
		i.width.measure(r.change.Pod, r.took, f.turn)
	}
}

// settleInspection writes and sends what an inspection returned, and settles it.
func (i *Inspector) settleInspection(ctx context.Context, f *flight, r result, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	i.publishResult(ctx, r, out)
	s := stage.Settled{UID: r.change.UID, Err: r.err, Superseded: f.superseded}
	switch {
	case r.err == nil || ctx.Err() != nil: // cancelled by the end of Run
	case r.cancelled:
		s.Hung = r.took
	case r.took >= i.hungAfter:
		s.Late = true
	}
	settled <- s
}

// settleKnown settles a change that needs no inspection.
func (i *Inspector) settleKnown(c stage.Change, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	switch {
	case !c.Current.IsZero():
		out <- stage.Outcome{Current: c.Current, Behind: c.Behind}
		return
	case c.Supersedes:
		i.supersede(c)
		return
	case c.Relisted != nil:
		out <- stage.Outcome{Relisted: c.Relisted}
		return
	case c.Uninspected:
		out <- stage.Outcome{UID: c.UID, Pod: c.Pod, Events: c.Events, Initial: c.Initial}
	case c.Pod == nil:
		i.remove(c, out)
	default:
		i.succeed(c, c.Status, out)
	}
	settled <- stage.Settled{UID: c.UID}
}

// remove settles the change of a pod that is gone.
func (i *Inspector) remove(c stage.Change, out chan<- stage.Outcome) {
	fillFromStatus(c.Events, i.good[c.UID])
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
		if !r.cancelled { // the differ logs a hung one, with the time of its retry
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
	fillFromStatus(c.Events, status)
	events := append(c.Events, networkEvents(c, last, status, i.startedAt)...)
	out <- stage.Outcome{UID: c.UID, Pod: c.Pod, Status: status, Events: events, Initial: c.Initial}
}
