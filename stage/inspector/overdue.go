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
	inFlight atomic.Int64
	// oldest is when the oldest began, nil if there is none.
	oldest  atomic.Pointer[time.Time]
	overdue atomic.Pointer[[]pleg.Inspection]
	// slowAt is when the oldest inspection is logged next if it is not hung, pause is
	// the last pause; both zero if none is overdue.
	slowAt time.Time
	pause  time.Duration
}

// age returns the age of the oldest call in seconds; 0 if there is none. It is safe
// for concurrent use.
func (o *observed) age() float64 {
	oldest := o.oldest.Load()
	if oldest == nil {
		return 0
	}
	return time.Since(*oldest).Seconds()
}

// InFlight returns the number of inspections in flight. It is safe for concurrent use.
func (i *Inspector) InFlight() int { return int(i.observed.inFlight.Load()) }

// Overdue returns the inspections in flight that are older than Options.HungAfter, the
// oldest first, without their calls. It is safe for concurrent use.
func (i *Inspector) Overdue() []pleg.Inspection {
	if overdue := i.observed.overdue.Load(); overdue != nil {
		return slices.Clone(*overdue)
	}
	return nil
}

// observe publishes the inspections in flight and logs those that are overdue, and
// returns when it is due again; zero if never. The loop calls it before each step.
func (i *Inspector) observe(ctx context.Context, now time.Time) time.Time {
	o, s := &i.observed, &i.flights
	placed := i.metrics.publish(s, now)
	o.inFlight.Store(int64(placed))
	if len(s.all) == 0 {
		o.oldest.Store(nil)
	} else {
		o.oldest.Store(&s.all[0].started)
	}
	var overdue []pleg.Inspection
	var next time.Time
	for _, f := range s.all {
		if due := f.started.Add(s.hungAfter); due.After(now) {
			next = earlier(next, due)
			break // the others began later
		}
		hung := f.hung(now, s.hungAfter)
		overdue = append(overdue, pleg.Inspection{
			UID: f.change.UID, Namespace: f.change.Pod.Namespace, Name: f.change.Pod.Name, Started: f.started, Hung: hung,
		})
		if hung {
			next = earlier(next, i.logHung(ctx, f, now))
		} else if len(overdue) == 1 {
			next = earlier(next, i.logSlow(ctx, f, now))
		}
	}
	if overdue == nil {
		o.overdue.Store(nil)
		o.slowAt, o.pause = time.Time{}, 0
		return next
	}
	published := overdue // escapes only here
	o.overdue.Store(&published)
	return next
}

// logHung logs a hung inspection at once and then each time its age has doubled, and
// returns when that will be. Retries are not logged: the differ has logged the pod.
func (i *Inspector) logHung(ctx context.Context, f *flight, now time.Time) time.Time {
	if f.logAt.After(now) {
		return f.logAt
	}
	age := now.Sub(f.started)
	f.logAt = now.Add(age)
	if !f.change.Retry {
		i.log.WarnContext(ctx, "inspection hangs",
			"podUID", f.change.UID, "pod", f.podName(), "call", i.callOf(f), "age", age)
	}
	return f.logAt
}

// logSlow logs the oldest inspection if it is not hung, with pauses that double while
// inspections are overdue, and returns when it is due to do so again. It leaves one that
// was overtaken the time to become hung.
func (i *Inspector) logSlow(ctx context.Context, f *flight, now time.Time) time.Time {
	at := &i.observed.slowAt
	if first := f.started.Add(2 * i.flights.hungAfter); at.Before(first) {
		*at = first
	}
	if at.After(now) {
		return *at
	}
	age := now.Sub(f.started)
	i.log.WarnContext(ctx, "inspections are slow",
		"oldest", f.podName(), "call", i.callOf(f), "age", age, "inFlight", len(i.flights.all))
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
