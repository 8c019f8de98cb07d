package inspector

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/fields"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	moment      = time.Second
	smallSlots  = 2
	smallHung   = moment     // Options.HungAfter
	smallLimit  = 6 * moment // Options.InspectTimeout
	mostCalls   = 4
	mostMoments = 5
)

// TestSmallSkiesCopyAll fails if a field is new that clone or key may have to know.
func TestSmallSkiesCopyAll(t *testing.T) {
	fields.Require(t, flights{}, "all moved took begun cancelled", "slots hungAfter") // options
	fields.Require(t, flight{}, "change started ends overtaken",
		"timeout cancel superseded cut reported") // of the call and its report: the plan does not read them
}

// TestSmallSkies tries every order in which four calls on two slots begin, end, are cancelled as their pods
// are gone, return long after their end, or hang. At each moment the plan follows the design. It changes no
// earlier than it announced.
func TestSmallSkies(t *testing.T) {
	for name, s := range map[string]*sky{
		"a new runtime":           {},
		"one that answers slowly": {flights: flights{begun: window / 2, took: 2 * moment}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.flights.slots, s.flights.hungAfter = smallSlots, smallHung
			seen := make(map[string]struct{})
			s.explore(t, seen)
			t.Logf("%d states", len(seen))
		})
	}
}

// sky is the flights, and the state of a second, simple implementation of the design.
type sky struct {
	flights flights
	now     time.Time
	begun   int
	moved   time.Time // the time at which a call last began, ended by itself or was cancelled
	path    []string
	wrong   error
}

func (s *sky) explore(t *testing.T, seen map[string]struct{}) {
	key := s.key()
	if _, ok := seen[key]; ok || t.Failed() {
		return
	}
	seen[key] = struct{}{}
	p := s.flights.next(s.now)
	if err := cmp.Or(s.wrong, s.check(&p)); err != nil {
		t.Errorf("%v, after %s", err, strings.Join(s.path, ", "))
		return
	}
	try := func(on bool, what string, do func(*sky)) {
		if on {
			c := s.clone()
			do(c)
			c.path = append(slices.Clip(s.path), what)
			c.explore(t, seen)
		}
	}
	if p.cancel != nil { // before anything else
		i := slices.Index(s.flights.all, p.cancel)
		try(true, fmt.Sprint("cancel ", i), func(s *sky) { s.moved = s.now; s.flights.makeRoom(s.flights.all[i], s.now) })
		return
	}
	more := s.begun < mostCalls
	try(more && (p.begin || p.late), "begin", func(s *sky) { s.begin(false) })
	try(p.retry && s.begun < 2, "retry", func(s *sky) { s.begin(true) })
	for i, f := range s.flights.all {
		try(true, fmt.Sprint("end ", i), func(s *sky) { s.end(i) })
		try(!f.over(s.now), fmt.Sprint("gone ", i), func(s *sky) {
			s.moved = s.now
			s.flights.cancel(s.flights.all[i], s.now, nil)
		})
	}
	try(s.now.Before(time.Time{}.Add(mostMoments*moment)), "wait", func(s *sky) { s.now = s.now.Add(moment) })
}

func (s *sky) begin(retry bool) {
	s.begun++
	s.moved = s.now
	s.flights.add(&flight{change: stage.Change{Retry: retry}, started: s.now, ends: s.now.Add(smallLimit), cancel: func(error) {}})
}

// end makes a call return: by itself, unless its context has ended.
func (s *sky) end(i int) {
	f := s.flights.all[i]
	s.flights.all = slices.Delete(s.flights.all, i, i+1)
	overtaken := make([]bool, len(s.flights.all))
	for i, other := range s.flights.all {
		overtaken[i] = other.overtaken || !f.over(s.now) && other.started.Before(f.started) && f.age(s.now) <= other.age(s.now)/2
	}
	if !f.over(s.now) {
		s.moved = s.now
		s.flights.answer(f, f.age(s.now), s.now)
	}
	for i, other := range s.flights.all {
		if other.overtaken != overtaken[i] {
			s.wrong = fmt.Errorf("a call of %v is overtaken: %v", other.started, other.overtaken)
		}
	}
}

// check compares a plan with the design.
func (s *sky) check(p *plan) error {
	all, taken := s.flights.all, len(s.flights.all)
	well, retries, old, waited := 0, 0, 0, s.now.Sub(s.moved)
	var oldestHung, ending *flight
	for _, f := range all {
		hung := f.overtaken && f.age(s.now) >= smallHung
		switch {
		case hung && oldestHung == nil:
			oldestHung = f
		case !hung && f.change.Retry:
			retries++
		}
		if !hung {
			well++
		}
		if f.age(s.now) >= smallHung {
			old++
		}
		if f.over(s.now) {
			ending = f
		}
	}
	kept := taken == 2*smallSlots-1 && well == taken
	begin := taken < 2*smallSlots && !kept && (well < smallSlots || waited >= smallHung)
	room := taken == 2*smallSlots || kept
	switch {
	case taken > 2*smallSlots, old == 0 && taken > smallSlots && well == taken:
		return fmt.Errorf("%d calls are in flight, %d of them old", taken, old)
	case p.begin != begin, p.retry != (begin && retries == 0), p.late != kept:
		return fmt.Errorf("the plan is %+v, with %d calls that do not hang of %d", *p, well, taken)
	case p.cancel == nil && oldestHung != nil && ending == nil && room && waited >= crowded*smallHung:
		return fmt.Errorf("nothing is cancelled after %v", waited)
	case p.cancel == nil:
	case !room, ending != nil, waited < crowded*min(smallHung, s.flights.took), oldestHung != nil && p.cancel != oldestHung:
		return fmt.Errorf("the call of %v is cancelled after %v", p.cancel.started, waited)
	case oldestHung == nil && (p.cancel != all[taken-1] || waited < crowded*smallHung || s.flights.cancelled+1 > s.flights.begun/share):
		return fmt.Errorf("the call of %v, which does not hang, is cancelled after %v", p.cancel.started, waited)
	}
	for d := time.Duration(1); d <= 8; d++ {
		at := s.now.Add(d * moment / 2)
		later := s.flights.next(at)
		same := later.begin == p.begin && later.retry == p.retry && later.late == p.late && later.cancel == p.cancel
		if early := p.again.IsZero() || p.again.After(at); !same && early && p.cancel == nil {
			return fmt.Errorf("the plan changes at %v, it said %v", at, p.again)
		}
	}
	return nil
}

func (s *sky) clone() *sky {
	c := *s
	c.flights.all = make([]*flight, len(s.flights.all))
	for i, f := range s.flights.all {
		copied := *f
		c.flights.all[i] = &copied
	}
	return &c
}

func (s *sky) key() string {
	key := fmt.Append(nil, s.now.Sub(time.Time{}), s.begun, s.flights.begun, s.flights.cancelled, s.flights.took, s.flights.moved.Sub(s.now))
	for _, f := range s.flights.all {
		key = fmt.Append(key, " ", f.age(s.now), f.overtaken, f.change.Retry, f.over(s.now))
	}
	return string(key)
}

// Of the inspections that do not hang one in share is cancelled, at any time: neither their number nor its
// bound depends on how many there were before.
func TestShareOfCancelledInspections(t *testing.T) {
	s, now := flights{slots: 2, hungAfter: time.Second}, time.Unix(0, 0)
	for block := range 10 {
		cancelled := 0
		for range 10 * window { // nothing ends: the oldest leaves at its timeout
			now = now.Add(crowded * s.hungAfter)
			leaves := 0
			if p := s.next(now); p.cancel != nil {
				cancelled++
				s.makeRoom(p.cancel, now)
				leaves = slices.Index(s.all, p.cancel)
			}
			if len(s.all) == 2*s.slots {
				s.all = slices.Delete(s.all, leaves, leaves+1)
			}
			s.add(&flight{started: now, ends: now.Add(time.Hour), cancel: func(error) {}})
		}
		if most := 10 * window / share; cancelled > most || cancelled < most/2 {
			t.Errorf("block %d: %d cancelled, want %d to %d", block, cancelled, most/2, most)
		}
	}
	before := s.cancelled
	if s.makeRoom(&flight{started: now.Add(-s.hungAfter), overtaken: true, cancel: func(error) {}}, now); s.cancelled != before {
		t.Error("one that hangs counts among those that do not")
	}
}

// While all slots are taken, nothing more begins. An inspection that hangs is cancelled once nothing has moved for four
// times as long as the last one took.
func TestPlanWithoutAFreeSlot(t *testing.T) {
	now, took := time.Unix(100, 0), 100*time.Millisecond
	for name, tc := range map[string]struct {
		oldest, moved time.Duration // ago; the oldest is overtaken
		cancels       bool
		again         time.Duration
	}{
		"one hangs":               {3 * smallHung, 4 * took, true, 0},
		"something has moved":     {3 * smallHung, 4*took - 1, false, 1},
		"none is old enough":      {smallHung - 1, 4 * took, false, 1},
		"one is just old enough":  {smallHung, 4 * took, true, 0},
		"one hangs, and is alone": {smallHung, smallHung, true, 0},
	} {
		s := flights{slots: 2, hungAfter: smallHung, moved: now.Add(-tc.moved), took: took}
		for n := range 4 {
			s.all = append(s.all, &flight{started: now.Add(-tc.oldest + time.Duration(n)), ends: now.Add(time.Hour), overtaken: n == 0})
		}
		p := s.next(now)
		if p.begin || p.retry || p.late || (p.cancel == s.all[0]) != tc.cancels || p.cancel != nil && !tc.cancels || !tc.cancels && p.again.Sub(now) != tc.again {
			t.Errorf("%s: %+v, again after %v; want a cancellation: %v, again after %v", name, p, p.again.Sub(now), tc.cancels, tc.again)
		}
	}
}
