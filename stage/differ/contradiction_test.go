package differ_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// An observation that is not used and shows something else than the record is a reason
// to list the pod, and does not make the cache more current.
func TestContradictionRelistsThePod(t *testing.T) {
	const known, dead = "c=running d=exited /s=running", "c=exited d=exited /s=running"
	died := event(2, "c=exited", dead)
	for name, tc := range map[string]struct {
		before step // since the listing
		do     step
		want   bool
		change string
	}{
		"newer event, the same":                {do: event(10, "c=running", known)},
		"newer event, sandbox ready again":     {do: event(10, "d=running", "c=running d=running /s=running"), want: true},
		"newer event, without a container":     {do: event(10, "c=running", running), want: true},
		"newer event of another sandbox":       {do: event(10, "/t=removed", "")},
		"older event, the same":                {do: event(-10, "c=running", known)},
		"older event, behind":                  {do: event(-10, "c=created", "c=created d=running /s=running")},
		"older event, ahead":                   {do: event(-10, "c=exited", dead)},
		"older event, container not listed":    {do: event(-10, "e=running", "e=running "+known)},
		"older event, unlisted container gone": {do: event(-10, "e=removed", known)},
		"older list, ahead":                    {do: alone(-10, dead)},

		"older list than an event, the same":        {before: died, do: alone(1, known)},
		"older list than an event, another sandbox": {before: died, do: alone(1, known+" /t=running"), change: "Started(/t)"},
		"older list than an event, container gone":  {before: event(2, "c=exited", exited), do: alone(1, running), want: true},
		"older list than a removal":                 {before: event(2, "d=removed", running), do: alone(1, known)},
		"older list than the removal of the pod": {
			before: all(event(2, "c=removed", "d=exited /s=running"), settle(nil), event(3, "d=removed", sandbox), settle(nil), event(4, "/s=removed", "")),
			do:     alone(1, known+" /t=running"), change: "Started(/t)",
		},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			have(known)(t, f)
			if tc.before != nil {
				all(tc.before, settle(nil))(t, f)
			}
			f.lister.takeRelisted()
			f.lister.relists.Store(0)
			tc.do(t, f)
			if tc.change != "" {
				f.requireChange(t, "a", tc.change)
			}
			f.requireNoChange(t)
			if got := slices.Contains(f.lister.takeRelisted(), "a") || f.lister.relists.Load() > 0; got != tc.want {
				t.Errorf("the pod is listed again: %v, want %v", got, tc.want)
			}
			if got := f.cache.touched["a"]; tc.want && got.After(at(1).Add(time.Second/2)) {
				t.Errorf("touched at %v", got)
			}
		})
	}
}

// A list that ran while an event came is joined with it, and covers the pod only if it shows
// all that is known.
func TestListIsJoinedWithAnEvent(t *testing.T) {
	pending := func(t *testing.T, f *fixture) {
		if !slices.Equal(f.cache.pending, []pleg.PodUID{"a"}) {
			t.Errorf("not covered: %v, want pod a", f.cache.pending)
		}
	}
	testDiffer(t, all(
		have(sandbox), event(35, "c=running", running), settle(nil), wait(period),
		list("/s=running /t=running"), want("Started(/t)"), pending, succeed,
		func(_ *testing.T, f *fixture) {
			h := hint("a", "c=running", "c=running /s=running /t=running")
			f.sendObservation(stage.Observation{UID: "a", At: at(9), AsOf: at(5), Hint: h})
			f.sendListing(stage.Listing{At: at(6), Pods: podsOf("/s=running /t=running")}) // it lacks a container
		},
		wantNone, pending, wantBehind(5),
	))
}

// wantBehind requires that not everything is said to be current as of a newer listing.
func wantBehind(listing int) step {
	return func(t *testing.T, f *fixture) {
		if newest := f.marks[len(f.marks)-1]; newest.Current.After(at(listing)) && len(newest.Behind) != 1 {
			t.Errorf("everything is said to be current as of %v", newest.Current)
		}
	}
}

// A pod whose last event shows less than a listing is not covered by that listing once the
// event is delivered.
func TestEventThatShowsLessDoesNotReachTheListing(t *testing.T) {
	testDiffer(t, all(
		have("c=running d=running /s=running"), event(35, "c=exited", exited), want("Died(c)"), wait(period),
		list(exited), succeed, wantNone, wantBehind(1),
	))
}

// What a CRI event shows is as current as the time before its statuses were gathered.
func TestEventIsAsCurrentAsItsStatuses(t *testing.T) {
	for name, tc := range map[string]struct {
		made, gathered int // tenths of a second after the listing; 0: the time of the event
		known, pod     string
		want           time.Duration // after the listing
	}{
		"exact":                       {10, 0, "c=running /s=running", "c=exited /s=running", time.Second},
		"gathered before":             {10, 4, "c=running /s=running", "c=exited /s=running", 400 * time.Millisecond},
		"gathered before the listing": {10, -4, "c=running /s=running", "c=exited /s=running", 1},
		"without the sandbox":         {10, 0, "c=running /s=running", "c=exited", 1},
		"without the other container": {10, 0, "c=running d=running /s=running", "c=exited /s=running", 1},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(plegtest.Pod("a", tc.known))
			after := func(tenths int) time.Time { return at(1).Add(time.Duration(tenths) * time.Second / 10) }
			o := stage.Observation{UID: "a", At: after(tc.made), Hint: hint("a", "c=exited", tc.pod)}
			if tc.gathered != 0 {
				o.AsOf = after(tc.gathered)
			}
			f.sendObservation(o)
			c := f.requireChange(t, "a", "Died(c)")
			if got := c.At.Sub(at(1)); got != tc.want || !c.Events[0].ObservedAt.Equal(c.At) {
				t.Errorf("as of %v after the listing, event of %v, want both %v", got, c.Events[0].ObservedAt.Sub(at(1)), tc.want)
			}
			f.settle("a", nil)
			f.sendObservation(stage.Observation{UID: "a", At: after(5), Pod: plegtest.Pod("a", tc.known)})
			f.requireNoChange(t) // the event is newer
		})
	}
}
