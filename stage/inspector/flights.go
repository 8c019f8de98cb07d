package inspector

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// crowded is how long nothing may begin or end, although all slots are taken, before an
	// inspection is cancelled; in multiples of Options.HungAfter. For a hung inspection it is also
	// in multiples of the time that others take.
	crowded = 4
	// Of inspections that are not hung, at most one in share of the last window is cancelled.
	share  = 20
	window = 128
	// hopeless is the age, in multiples of Options.HungAfter, from which nobody waits for an
	// inspection, even if nothing has overtaken it.
	hopeless = 10
)

// flight is one inspection in progress.
type flight struct {
	change  stage.Change
	started time.Time
	// ends is the time at which the call's context ends, or has ended. timeout is how long it may
	// take.
	ends    time.Time
	timeout time.Duration
	cancel  context.CancelCauseFunc
	// overtaken is set once an inspection that began later has ended by itself in at most half of
	// the age of this inspection.
	overtaken bool
	// superseded is set once it was cancelled because its pod is gone, cut once it was cancelled on
	// request, reported once the differ knows that it hangs.
	superseded, cut, reported bool
}

// over reports whether the call's context has ended: it returns soon.
func (f *flight) over(now time.Time) bool { return !now.Before(f.ends) }

func (f *flight) age(now time.Time) time.Duration { return now.Sub(f.started) }

// hung reports whether the inspection hangs. If none ends, none is hung: the runtime counts as
// slow.
func (f *flight) hung(now time.Time, hungAfter time.Duration) bool {
	return f.overtaken && f.age(now) >= hungAfter
}

// flights are the inspections in progress, with the rules that say which inspection may begin and
// which must end. It uses no clock.
type flights struct {
	slots     int
	hungAfter time.Duration
	// all are in the order in which they began. They take a slot each.
	all []*flight
	// moved is the time at which an inspection last began, ended or was cancelled.
	moved time.Time
	// took is the time of the last inspection that ended by itself.
	took time.Duration
	// begun and cancelled count the inspections of a window, and how many of them were cancelled
	// although not hung.
	begun, cancelled int
}

// plan is the permitted steps, and when to ask again.
type plan struct {
	// begin and retry: another pod, or a quarantined pod, may be inspected. late: only a pod whose
	// change was found after the newest of the inspections began.
	begin, retry, late bool
	cancel             *flight
	// again is the time at which the plan changes although nothing happens; zero if never.
	again time.Time
}

// due reports whether a time has come. If not, the plan is to be asked for again then.
func (p *plan) due(at, now time.Time) bool {
	if !now.Before(at) {
		return true
	}
	p.again = stage.Earlier(p.again, at)
	return false
}

// next applies the rules.
func (s *flights) next(now time.Time) (p plan) {
	well, retries := 0, 0
	for _, f := range s.all {
		if hung := f.overtaken && p.due(f.started.Add(s.hungAfter), now); !hung {
			well++
			if f.change.Retry {
				retries++
			}
		}
	}
	// While none is known to hang, one slot is kept for a later pod: its inspection shows whether the
	// others hang.
	kept := s.slots > 1 && well == len(s.all) && well == 2*s.slots-1
	if kept || len(s.all) >= 2*s.slots {
		p.late, p.cancel = kept, s.victim(&p, now)
		return p
	}
	// While nothing ends, one more begins: if it ends, the older ones hang.
	p.begin = well < s.slots || p.due(s.moved.Add(s.hungAfter), now)
	// A slow runtime that serves the last call first serves only the newest of several retries:
	// there retries begin one after the other.
	quick, apart := s.took < s.hungAfter, min(s.took, 2*s.hungAfter)
	p.retry = p.begin && (retries == 0 || retries < s.slots/2 && (quick || p.due(s.moved.Add(apart), now)))
	return p
}

// victim returns the inspection to cancel when all slots are taken: the oldest hung one, or else
// the youngest of all. Never the oldest of all: a runtime that serves its calls in order works on
// it. Few inspections that do not hang are cancelled: a slow runtime must not lose many inspections
// to a guess.
func (s *flights) victim(p *plan, now time.Time) *flight {
	var hung, young *flight
	for _, f := range s.all {
		switch {
		case f.over(now):
			return nil // the cancelled inspection leaves its slot soon
		case hung == nil && f.hung(now, s.hungAfter):
			hung = f
		default:
			young = f // there are several
		}
	}
	patience := crowded * s.hungAfter
	if hung != nil { // otherwise 40 hung pods of 110 delay the others by 101 s
		patience = min(patience, crowded*s.took)
	} else if s.cancelled >= s.begun/share {
		return nil
	}
	if !p.due(s.moved.Add(patience), now) {
		return nil
	}
	if hung != nil {
		return hung
	}
	return young
}

func (s *flights) add(f *flight) {
	s.all = append(s.all, f)
	s.moved = f.started
	if s.begun++; s.begun >= window {
		s.begun, s.cancelled = s.begun/2, s.cancelled/2
	}
}

// makeRoom cancels an inspection, as nothing has ended for long.
func (s *flights) makeRoom(f *flight, now time.Time) {
	if !f.hung(now, s.hungAfter) {
		s.cancelled++
	}
	s.cancel(f, now, fmt.Errorf("no answer for %v, cancelled as %d inspections wait and none ends",
		f.age(now).Round(time.Millisecond), len(s.all)))
}

// cancel ends the context of an inspection.
func (s *flights) cancel(f *flight, now time.Time, cause error) {
	s.moved = now
	f.ends = now
	f.cancel(cause)
}

// find returns the pod's inspection in progress, or nil.
func (s *flights) find(uid pleg.PodUID) *flight {
	if i := slices.IndexFunc(s.all, func(f *flight) bool { return f.change.UID == uid }); i >= 0 {
		return s.all[i]
	}
	return nil
}

// answer notes that an inspection, which has left, had ended by itself. It overtook earlier
// inspections if it took at most half of their age: they do not wait for the same thing.
func (s *flights) answer(f *flight, took time.Duration, now time.Time) {
	s.moved, s.took = now, took
	for _, older := range s.all {
		if !older.started.Before(f.started) {
			return
		}
		older.overtaken = older.overtaken || 2*took <= older.age(now)
	}
}
