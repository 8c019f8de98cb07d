package inspector

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// patience is how long, in times of Options.HungAfter, an inspection that
	// hangs keeps its place although others come to hang, and how long the
	// next inspections of the same pod may take.
	patience = 4
	// patientTries is the number of inspections of a pod that may hang before
	// each further one may take twice as long as the one before: the first few
	// come to their end soon, also where very many pods hang, and yet a pod
	// that needs long gets it in the end.
	patientTries = 5
	// maxAbandoned bounds the calls that run on although their context has
	// ended. One more keeps its inspector's place.
	maxAbandoned = 256
)

// allowance returns how long an inspection may take of a pod that has hung so
// many times in a row.
func (i *Inspector) allowance(hung int) time.Duration {
	if hung == 0 {
		return i.timeout
	}
	return i.patience(hung)
}

func (i *Inspector) patience(hung int) time.Duration {
	long := patience * i.hungAfter
	for range max(0, hung+1-patientTries) {
		if long >= i.timeout {
			break
		}
		long *= 2
	}
	return min(long, i.timeout)
}

// roomForRetry reports whether a pod that hung before may be inspected: those
// that do hang, and these, together take half of the inspectors at most.
func (i *Inspector) roomForRetry() bool {
	return i.inFlight.slow(func(*flight) bool { return true }) < i.half
}

// watch looks at the inspections under way: it notes which hang, cancels what is
// too much of them, and abandons those that do not return.
func (i *Inspector) watch(ctx context.Context, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	now := time.Now()
	for _, f := range i.inFlight.byPod {
		if f.abandoned {
			continue
		}
		if !f.hung && now.Sub(f.started) >= i.hungAfter {
			f.hung = true
			i.inFlight.hung++
		}
		if now.Sub(f.ends) >= i.hungAfter && i.inFlight.abandoned < maxAbandoned {
			i.abandon(ctx, f, out, settled)
		}
	}
	for i.inFlight.slow(func(f *flight) bool { return !f.over(now) }) > i.half {
		i.evict(now)
	}
	i.schedule(now)
}

// evict cancels an inspection that hangs, as one more does than may: the one
// that has run longest, unless that has yet to have its time; then it is the
// last. A retry ends by itself once it has had its time.
func (i *Inspector) evict(now time.Time) {
	var first, last *flight
	for _, f := range i.inFlight.byPod {
		if !f.hung || f.change.Hung > 0 || f.over(now) {
			continue
		}
		if first == nil || before(f, first) {
			first = f
		}
		if last == nil || before(last, f) {
			last = f
		}
	}
	victim := last
	if now.Sub(first.started) >= i.patience(0) {
		victim = first
	}
	victim.ends = now
	victim.cancel(fmt.Errorf("no answer for %v, cancelled as more than %d pods hang",
		now.Sub(victim.started).Round(time.Millisecond), i.half))
}

func before(a, b *flight) bool {
	return cmp.Or(a.started.Compare(b.started), cmp.Compare(a.change.UID, b.change.UID)) < 0
}

// abandon settles an inspection whose call has not returned although its context
// has ended. The call goes on, but takes no inspector's place, and the pod is
// not inspected again before it returns.
func (i *Inspector) abandon(ctx context.Context, f *flight, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	if f.hung {
		i.inFlight.hung--
	}
	f.abandoned = true
	i.inFlight.abandoned++
	i.log.WarnContext(ctx, "the runtime goes on with an inspection that was cancelled; it is abandoned",
		"podUID", f.change.UID, "pod", f.change.Pod.Namespace+"/"+f.change.Pod.Name)
	i.conclude(ctx, f.unreturned(), out, settled)
}

// unreturned is the result of a call that has not returned.
func (f *flight) unreturned() result {
	took := time.Since(f.started)
	return result{
		change: f.change, took: took, hung: true,
		err: inspectError(f.change.Pod, fmt.Errorf("the call of %v ago has not returned, although it was cancelled", took.Round(time.Millisecond))),
	}
}

// schedule has watch called when next there may be something to see.
func (i *Inspector) schedule(now time.Time) {
	i.watchAt = time.Time{}
	for _, f := range i.inFlight.byPod {
		if f.abandoned {
			continue
		}
		for _, at := range []time.Time{f.started.Add(i.hungAfter), f.ends.Add(i.hungAfter)} {
			if at.After(now) {
				i.watchBy(at, now)
			}
		}
	}
}

// watchBy has watch called at a time, or before.
func (i *Inspector) watchBy(at, now time.Time) {
	if i.watchAt.IsZero() || at.Before(i.watchAt) {
		i.watchAt = at
		i.alarm.Reset(at.Sub(now))
	}
}
