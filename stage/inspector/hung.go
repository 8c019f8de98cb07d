package inspector

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// patience is how long a hung inspection keeps its place although others hang
	// too, and how long the next inspections of the same pod may take; in
	// multiples of Options.HungAfter.
	patience = 4
	// patientTries is the number of hung inspections of a pod after which each
	// further one may take twice as long as the one before. The first few end
	// soon, even if very many pods hang; a pod that needs long gets it later.
	patientTries = 5
	// maxAbandoned bounds the calls that keep running although their context has
	// ended. One more keeps its inspector's place.
	maxAbandoned = 256
)

// allowance returns how long an inspection may take if the last ones of the same
// pod hung that many times in a row.
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

// roomForRetry reports whether a quarantined pod may be inspected: hung inspections
// and retries together take at most half of the inspectors.
func (i *Inspector) roomForRetry() bool {
	return i.inFlight.slow(func(*flight) bool { return true }) < i.half
}

// checkInFlight marks inspections as hung, cancels those that are too many, and
// abandons those that do not return.
func (i *Inspector) checkInFlight(ctx context.Context, out chan<- stage.Outcome, settled chan<- stage.Settled) {
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
	i.scheduleCheck(now)
}

// evict cancels one of too many hung inspections: the oldest, or the youngest if
// the oldest has not had its time yet. A retry ends by its own timeout.
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
// has ended. The call keeps running but takes no inspector's place, and the pod is
// not inspected again before it returns.
func (i *Inspector) abandon(ctx context.Context, f *flight, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	if f.hung {
		i.inFlight.hung--
	}
	f.abandoned = true
	i.inFlight.abandoned++
	i.log.WarnContext(ctx, "cancelled inspection keeps running, abandoned",
		"podUID", f.change.UID, "pod", f.change.Pod.Namespace+"/"+f.change.Pod.Name)
	i.settleInspection(ctx, f.unreturned(), out, settled)
}

// unreturned is the result of a call that has not returned.
func (f *flight) unreturned() result {
	took := time.Since(f.started)
	return result{
		change: f.change, took: took, hung: true,
		err: fmt.Errorf("inspect pod %s/%s (%s): the call of %v ago was cancelled and has not returned",
			f.change.Pod.Namespace, f.change.Pod.Name, f.change.UID, took.Round(time.Millisecond)),
	}
}

// scheduleCheck sets the alarm for the next inspection to mark or abandon.
func (i *Inspector) scheduleCheck(now time.Time) {
	i.checkAt = time.Time{}
	for _, f := range i.inFlight.byPod {
		if f.abandoned {
			continue
		}
		for _, at := range []time.Time{f.started.Add(i.hungAfter), f.ends.Add(i.hungAfter)} {
			if at.After(now) {
				i.checkBy(at, now)
			}
		}
	}
}

// checkBy has checkInFlight called at a time or before.
func (i *Inspector) checkBy(at, now time.Time) {
	if i.checkAt.IsZero() || at.Before(i.checkAt) {
		i.checkAt = at
		i.alarm.Reset(at.Sub(now))
	}
}
