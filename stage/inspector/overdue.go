package inspector

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// observed is what other goroutines, and the log, learn of the inspections in flight.
type observed struct {
	inFlight, width atomic.Int64
	overdue         atomic.Pointer[[]pleg.Inspection]
	// timer has the loop call observe when an inspection becomes overdue or is due to
	// be logged.
	timer *time.Timer
	// slowAt is when the oldest inspection is logged next if it is not hung, pause is
	// the last pause; both zero if none is overdue.
	slowAt time.Time
	pause  time.Duration
}

// InFlight returns the number of inspections in flight and the width. It is safe for
// concurrent use.
func (i *Inspector) InFlight() (inFlight, width int) {
	return int(i.observed.inFlight.Load()), int(i.observed.width.Load())
}

// Overdue returns the inspections in flight that are older than Options.HungAfter, the
// oldest first, without their calls. It is safe for concurrent use.
func (i *Inspector) Overdue() []pleg.Inspection {
	if overdue := i.observed.overdue.Load(); overdue != nil {
		return slices.Clone(*overdue)
	}
	return nil
}

// observe publishes the inspections in flight and logs those that are overdue. The loop
// calls it after each step.
func (i *Inspector) observe(ctx context.Context) {
	o := &i.observed
	o.inFlight.Store(int64(i.inFlight.len()))
	o.width.Store(int64(i.width.now))
	oldest, now := i.inFlight.oldest.Load(), time.Now()
	if oldest == nil {
		o.timer.Stop()
	} else if wait := oldest.Add(i.hungAfter).Sub(now); wait > 0 {
		o.timer.Reset(wait)
	} else {
		i.observeOverdue(ctx, now)
		return
	}
	o.overdue.Store(nil)
	o.slowAt, o.pause = time.Time{}, 0
}

func (i *Inspector) observeOverdue(ctx context.Context, now time.Time) {
	var flights []*flight
	next := now.Add(i.timeout)
	for f := range i.inFlight.each() {
		if due := f.started.Add(i.hungAfter); due.After(now) {
			next = earlier(next, due)
		} else {
			flights = append(flights, f)
		}
	}
	slices.SortFunc(flights, func(a, b *flight) int { return a.started.Compare(b.started) })
	overdue := make([]pleg.Inspection, len(flights))
	for n, f := range flights {
		pod := f.change.Pod
		overdue[n] = pleg.Inspection{UID: f.change.UID, Namespace: pod.Namespace, Name: pod.Name, Started: f.started, Hung: f.hung}
		if f.hung {
			next = earlier(next, i.logHung(ctx, f, now))
		}
	}
	i.observed.overdue.Store(&overdue)
	if !flights[0].hung {
		next = earlier(next, i.logSlow(ctx, flights[0], now))
	}
	i.observed.timer.Reset(next.Sub(now))
}

// logHung logs a hung inspection at once and then each time its age has doubled, and
// returns when that will be. A retry is logged if the number of retries has doubled.
func (i *Inspector) logHung(ctx context.Context, f *flight, now time.Time) time.Time {
	if f.logAt.After(now) {
		return f.logAt
	}
	age := now.Sub(f.started)
	f.logAt = now.Add(age)
	if tries := f.change.Hung; tries&(tries-1) == 0 {
		i.log.WarnContext(ctx, "inspection hangs",
			"podUID", f.change.UID, "pod", f.podName(), "call", i.callOf(f), "age", age, "hungBefore", tries)
	}
	return f.logAt
}

// logSlow logs the oldest inspection if it is not hung, with pauses that double while
// inspections are overdue, and returns when it is due to do so again. It leaves one that
// was overtaken the time to become hung.
func (i *Inspector) logSlow(ctx context.Context, f *flight, now time.Time) time.Time {
	at := &i.observed.slowAt
	if first := f.started.Add(2 * i.hungAfter); at.Before(first) {
		*at = first
	}
	if at.After(now) {
		return *at
	}
	age := now.Sub(f.started)
	i.log.WarnContext(ctx, "inspections are slow",
		"oldest", f.podName(), "call", i.callOf(f), "age", age, "inFlight", i.inFlight.len())
	i.observed.pause = max(2*i.observed.pause, age)
	*at = now.Add(i.observed.pause)
	return *at
}

func (f *flight) podName() string { return f.change.Pod.Namespace + "/" + f.change.Pod.Name }

// callOf returns the runtime call that an inspection waits for; "" if it is not known.
func (i *Inspector) callOf(f *flight) string {
	if i.calls == nil {
		return ""
	}
	if call := i.calls(f.change.UID); call != nil {
		return call.String()
	}
	return ""
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
