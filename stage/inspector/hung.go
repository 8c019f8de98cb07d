package inspector

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// crowded is how old an inspection must be to be cancelled while none ends, and the
	// time of a pod's first retries; in multiples of Options.HungAfter.
	crowded = 4
	// patientTries is the number of hung inspections of a pod after which each
	// further one may take twice as long as the one before.
	patientTries = 5
	// maxAbandoned bounds the calls that keep running although their context has
	// ended. One more keeps its place.
	maxAbandoned = 256
)

// allowance returns how long an inspection may take if the last ones of the same
// pod hung that many times in a row.
func (i *Inspector) allowance(hung int) time.Duration {
	if hung == 0 {
		return i.timeout
	}
	long := crowded * i.hungAfter
	for range max(0, hung+1-patientTries) {
		if long >= i.timeout {
			break
		}
		long *= 2
	}
	return min(max(long, i.pace.suspicious()), i.timeout)
}

// hasPlace reports whether another pod may be inspected. Inspections that were
// overtaken lend their places. While none ends, one may begin as a trial: if it ends,
// the older ones are hung.
func (i *Inspector) hasPlace(now time.Time) bool {
	return !i.taken() && !i.unproven(now) && (!i.full() || !now.Before(i.pace.nextTrial()))
}

// hasPlaceForRetry reports whether a quarantined pod may be inspected, if another one
// may: retries take at most half of the places, and leave half of the extra ones.
func (i *Inspector) hasPlaceForRetry() bool {
	return i.inFlight.retries < i.half && i.inFlight.len() < i.places()+i.bound-i.half
}

// taken reports whether all places and all extra places are taken.
func (i *Inspector) taken() bool { return i.inFlight.len() >= i.places()+i.bound }

// unproven reports whether a further extra place would help nobody, since the runtime
// was seen to serve fewer at once. If it falls silent, that is no longer known.
func (i *Inspector) unproven(now time.Time) bool {
	return i.pace.extra > 0 && i.inFlight.len() >= i.places()+i.pace.extra && now.Before(i.silence())
}

// silence returns when the runtime has been silent for longer than recent inspections took.
func (i *Inspector) silence() time.Time {
	return i.pace.answered.Add(max(i.pace.patience(), i.pace.suspicious()))
}

// full reports whether only a trial may begin.
func (i *Inspector) full() bool { return i.inFlight.len()-i.inFlight.lent >= i.places() }

// places returns the number of inspections at once while none hangs.
func (i *Inspector) places() int {
	if i.fixed {
		return i.bound
	}
	return i.width.now
}

// review applies the rules that depend on the age of inspections.
func (i *Inspector) review(ctx context.Context, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	now := time.Now()
	patience := i.pace.patience()
	var stuck []*flight
	for _, f := range i.inFlight.flights {
		age := f.age(now)
		if f.overtaken && !f.lent && age >= patience {
			f.lent = true
			i.inFlight.lent++
		}
		if f.overtaken && !f.hung && age >= i.hungAfter {
			f.hung = true
			i.inFlight.hung++
		}
		if now.Sub(f.ends) >= i.hungAfter {
			stuck = append(stuck, f)
		}
	}
	for _, f := range stuck {
		if len(i.inFlight.abandoned) < maxAbandoned {
			i.abandon(ctx, f, out, settled)
		}
	}
	for _, f := range i.victims(now) {
		i.pace.cancelled++
		i.pace.cancelledAt = now
		i.cancel(f, now, fmt.Errorf("no answer for %v, cancelled as %d inspections wait and none ends",
			f.age(now).Round(time.Millisecond), i.inFlight.len()))
	}
}

func (i *Inspector) cancel(f *flight, now time.Time, cause error) {
	f.ends = now
	f.cancel(cause)
}

// victims returns what to cancel. While nothing ends although all places and all extra
// ones are taken, hung inspections free half of the extra places. If none is hung, the
// runtime may be slow, and one at a time is cancelled: never the oldest, because a
// runtime that serves its calls in order works on that one.
func (i *Inspector) victims(now time.Time) []*flight {
	if !i.taken() {
		return nil
	}
	over := 0
	var hung []*flight
	var youngest *flight
	for n, f := range i.inFlight.flights {
		switch {
		case f.over(now): // leaves its place soon
			over++
		case f.hung && f.age(now) >= i.pace.suspicious():
			hung = append(hung, f)
		case n > 0 && !now.Before(i.cancellable(f)):
			youngest = f
		}
	}
	switch {
	case len(hung) > 0 && over < i.half && !now.Before(i.quietEnd()):
		return hung[:min(len(hung), i.half-over)]
	case i.inFlight.hung == 0 && youngest != nil && !now.Before(i.nextCancel()):
		return []*flight{youngest}
	}
	return nil
}

// quietEnd returns when nothing has happened for longer than recent inspections took.
func (i *Inspector) quietEnd() time.Time {
	return i.pace.moved.Add(max(i.pace.patience(), i.pace.suspicious()))
}

// cancellable returns when an inspection that is not hung has had its time.
func (i *Inspector) cancellable(f *flight) time.Time {
	since := f.started
	if i.pace.answered.After(since) {
		since = i.pace.answered
	}
	return since.Add(max(crowded*i.hungAfter, i.pace.suspicious()))
}

// nextCancel returns when the next inspection that is not hung may be cancelled. If
// the runtime answered before, it is more likely to be slow, and the pauses double.
func (i *Inspector) nextCancel() time.Time {
	if i.pace.cancelled == 0 {
		return time.Time{}
	}
	pause := i.hungAfter / 2
	if len(i.pace.recent) > 0 {
		pause <<= min(i.pace.cancelled-1, 16)
	}
	return i.pace.cancelledAt.Add(pause)
}

// nextReview returns when review or hasPlace will next have another result, if nothing
// happens until then; zero if never.
func (i *Inspector) nextReview(now time.Time) time.Time {
	var next time.Time
	at := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	patience, suspicious := i.pace.patience(), i.pace.suspicious()
	taken := i.taken()
	for n, f := range i.inFlight.flights {
		if f.overtaken && !f.lent {
			at(f.started.Add(patience))
		}
		if f.overtaken && !f.hung {
			at(f.started.Add(i.hungAfter))
		}
		if taken && f.hung {
			at(f.started.Add(suspicious))
		}
		if taken && n > 0 {
			at(i.cancellable(f))
		}
		at(f.ends.Add(i.hungAfter))
	}
	switch {
	case taken:
		at(i.quietEnd())
		at(i.nextCancel())
	case i.unproven(now):
		at(i.silence())
	case i.full():
		at(i.pace.nextTrial())
	}
	return next
}

// setAlarm has review called when nextReview says.
func (i *Inspector) setAlarm(now time.Time) {
	next := i.nextReview(now)
	if next.Equal(i.alarmAt) {
		return
	}
	i.alarmAt = next
	if next.IsZero() {
		i.alarm.Stop()
		return
	}
	i.alarm.Reset(next.Sub(now))
}

// supersede cancels the inspection of a pod that is gone, if it hangs. A slow one
// still tells what the pod was.
func (i *Inspector) supersede(c stage.Change) {
	now := time.Now()
	f := i.inFlight.find(c.UID)
	if f == nil || f.over(now) || !f.hung && now.Before(i.cancellable(f)) {
		return
	}
	f.superseded = true
	i.cancel(f, now, fmt.Errorf("the pod is gone, cancelled after %v", f.age(now).Round(time.Millisecond)))
}

// abandon settles an inspection whose call has not returned although its context
// has ended. The call keeps running but takes no place, and the pod is not inspected
// again before it returns.
func (i *Inspector) abandon(ctx context.Context, f *flight, out chan<- stage.Outcome, settled chan<- stage.Settled) {
	i.inFlight.abandon(f)
	i.log.WarnContext(ctx, "cancelled inspection keeps running, abandoned",
		"podUID", f.change.UID, "pod", f.change.Pod.Namespace+"/"+f.change.Pod.Name)
	i.settleInspection(ctx, f, f.unreturned(), out, settled)
}

// unreturned is the result of a call that has not returned.
func (f *flight) unreturned() result {
	took := time.Since(f.started)
	return result{
		change: f.change, took: took, cancelled: true,
		err: fmt.Errorf("inspect pod %s/%s (%s): the call of %v ago was cancelled and has not returned",
			f.change.Pod.Namespace, f.change.Pod.Name, f.change.UID, took.Round(time.Millisecond)),
	}
}
