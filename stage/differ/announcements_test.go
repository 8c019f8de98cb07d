package differ_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var runningPod = plegtest.Pod("a", "c=running")

// stream is a list while an event stream is up, and broke one after it has ended.
func stream(words string) step {
	return func(_ *testing.T, f *fixture) { f.sendListing(stage.Listing{Pods: podsOf(words), StreamUp: true}) }
}

func broke(words string) step {
	return func(_ *testing.T, f *fixture) {
		f.sendListing(stage.Listing{Pods: podsOf(words), StreamUp: true, StreamBroke: true})
	}
}

// settle ends the inspections of all pods.
func settle(err error) step { return func(_ *testing.T, f *fixture) { f.settleAll(err) } }

// The pod is listed with a running container before each.
func TestUnannouncedChangesAreCounted(t *testing.T) {
	const dead = "c=exited"
	end, late := event(1, dead, "-"), event(-1, dead, dead) // late was made before the list
	for name, tc := range map[string]struct {
		do   step
		want float64
	}{
		"no CRI event": {stream(dead), 1},
		"removed pod":  {stream(gone), 2}, // died and removed
		"new pod": {func(_ *testing.T, f *fixture) {
			f.sendListing(stage.Listing{Pods: []*pleg.Pod{runningPod, plegtest.Pod("b", "d=running /s=running")}, StreamUp: true})
		}, 2},
		"no change":         {stream("c=running"), 0},
		"created container": {stream("c=running d=created"), 0},
		"unknown state":     {stream("c=unknown"), 0},
		"no stream":         {list(dead), 0},
		"stream ended":      {broke(dead), 1},
		"stream ended, the next one announces it":          {all(broke(dead), wait(4*time.Second), late), 0},
		"announced 4 s later":                              {all(stream(dead), wait(4*time.Second), late), 0},
		"announced 6 s later":                              {all(stream(dead), wait(6*time.Second), late), 1},
		"announced by the removal":                         {all(stream(dead), event(-1, "c=removed", "-")), 0},
		"removed pod, announced later":                     {all(stream(gone), event(-1, "c=removed", "-")), 0},
		"removed pod, its end announced later":             {all(stream(gone), event(-1, dead, "-")), 1},
		"its start announced later":                        {all(stream(dead), event(-1, "c=running", "-")), 1},
		"announced 4 s before by an event without the pod": {all(end, wait(4*time.Second), stream(dead)), 0},
		"announced 6 s before":                             {all(end, wait(6*time.Second), stream(dead)), 1},
		"another container announced":                      {all(event(1, "d=exited", "-"), stream(dead)), 1},
		"announced with the pod":                           {all(event(1, dead, dead), settle(nil), stream(dead)), 0},
		"announced with the pod, inspection fails":         {all(event(1, dead, dead), settle(errInspect), stream(dead)), 0},
		"listed three times because inspections fail":      {all(slices.Repeat([]step{stream(dead), settle(errInspect), wait(6 * time.Second)}, 3)...), 1},
		"listed during an inspection":                      {all(event(1, "d=running", "c=running d=running"), stream("c=exited d=running")), 1},
	} {
		runDiffer(t, name, all(have("c=running"), tc.do, settle(nil), wait(time.Minute), list(gone), missed(tc.want)))
	}
}

// reports requires what the differ reported to the lister since the last such step.
func reports(unannounced int, announced ...bool) step {
	return func(t *testing.T, f *fixture) {
		synctest.Wait()
		if f.lister.unannounced != unannounced || !slices.Equal(f.lister.announced, announced) {
			t.Errorf("reported %d unannounced changes and announced listings %v, want %d and %v",
				f.lister.unannounced, f.lister.announced, unannounced, announced)
		}
		f.lister.unannounced, f.lister.announced = 0, nil
	}
}

// missed requires the number of unannounced changes so far.
func missed(n float64) step {
	return func(t *testing.T, f *fixture) { kit.RequireMetric(t, f.metrics, n, "pleg_missed_events_total") }
}

// A stream is worth something once lists and events have shown the same change.
func TestConfirmedAnnouncements(t *testing.T) {
	const still, dead = "c=running", "c=exited"
	end := event(1, dead, "-")
	for name, tc := range map[string]struct {
		do   step
		next string // what the next lists show
		want bool
	}{
		"nothing":                     {wantNone, still, false},
		"an event without a change":   {event(1, still, still), still, false},
		"an event with a change":      {event(1, dead, dead), dead, true},
		"and then one without":        {all(event(1, dead, dead), event(2, dead, dead)), dead, true},
		"an event without the pod":    {end, dead, true},
		"and a change without one":    {end, dead + " d=created", true},
		"two events, no list":         {all(end, end), still, false},
		"of another container":        {all(event(1, "d=exited", "-"), list(dead)), dead, false},
		"an event after the list":     {all(stream(dead), event(-1, dead, "-")), dead, true},
		"an event, a single-pod list": {all(end, alone(2, dead)), dead, true},
		"a single-pod list":           {alone(2, dead), dead, false},
	} {
		runDiffer(t, name, all(have(still), tc.do, settle(nil), stream(tc.next), settle(nil), reports(0, tc.want),
			stream(tc.next), reports(0, false)))
	}
}

func TestWhatAnUnannouncedChangeCauses(t *testing.T) {
	testSteps(t, map[string][]step{
		"a relist": {have("c=running"), stream("c=running"), wantRelists(0), stream("c=exited"), wantRelists(1)},
		"doubt, although another change was announced": {
			have("c=running d=running"), event(1, "d=exited", "-"), stream("c=exited d=exited"), settle(nil),
			wait(6 * time.Second), stream("c=exited d=exited"), reports(1, false),
		},
		"doubt, if a live pod has lost a container": {
			have("c=exited /s=running"), stream("/s=running"), settle(nil), wait(6 * time.Second), stream("/s=running"), reports(1, false),
		},
		"doubt, if a container of a dead pod ends": {
			have("c=running /s=exited"), stream("c=exited /s=exited"), settle(nil), wait(6 * time.Second), stream("c=exited /s=exited"), reports(1, false),
		},
		"nothing, if the stream has ended": {
			have("c=running"), broke("c=exited"), reports(0), settle(nil), wait(6 * time.Second), stream("c=exited"), reports(0, false), missed(1),
		},
		// Dead pods are listed until they are gone, so the stream need not announce it.
		"nothing, if a dead pod is gone": {
			have("c=exited /s=exited"), stream(gone), settle(nil), wantRelists(0), wait(time.Minute), list(gone), reports(0, false), missed(2),
		},
	})
}

// A runtime that announces pods which do not exist must not fill the memory.
func TestNewPodsFromCRIEventsAreBounded(t *testing.T) {
	const bound = 4096
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle()
		changes := 0
		announce := func(n int) {
			for i := range n {
				f.sendHint(1, withStatus(hint(pleg.PodUID(fmt.Sprint("p-", changes, "-", i)), "/s=running", "/s=running")))
				if _, ok := f.nextChange(); ok {
					changes++
				}
			}
		}
		announce(bound)
		if n := f.lister.relists.Load(); changes != bound || n != 0 {
			t.Errorf("%d changes and %d relists requested, want %d and none", changes, n, bound)
		}
		announce(10)
		if n := f.lister.relists.Load(); changes != bound || n == 0 {
			t.Errorf("%d changes and %d relists requested, want %d and some", changes, n, bound)
		}
		f.list()
		announce(1)
		if changes != bound+1 {
			t.Errorf("after a listing %d changes, want one more than %d", changes, bound)
		}
	})
}

// attempts returns a pod that has these attempts of one container.
func attempts(numbers ...uint32) *pleg.Pod {
	p := plegtest.Pod("a", "")
	for _, n := range numbers {
		p.Containers = append(p.Containers, &pleg.Container{
			ID: pleg.ContainerID('a' + rune(n)), Name: "main", Attempt: n, State: pleg.StateRunning,
		})
	}
	return p
}

// Attempts that no list has shown are counted once, however often the inspection fails.
func TestSkippedAttemptsAreCounted(t *testing.T) {
	other := attempts(7)
	other.Containers[0].Name = "other"
	for name, tc := range map[string]struct {
		old  []*pleg.Pod
		cur  *pleg.Pod
		want float64
	}{
		"new pod":                      {nil, attempts(5), 0},
		"next attempt":                 {[]*pleg.Pod{attempts(5)}, attempts(6, 5), 0},
		"one skipped":                  {[]*pleg.Pod{attempts(5)}, attempts(7, 5), 1},
		"three skipped, old removed":   {[]*pleg.Pod{attempts(5)}, attempts(9), 3},
		"two new, one between":         {[]*pleg.Pod{attempts(5)}, attempts(8, 6), 1},
		"container with another name":  {[]*pleg.Pod{attempts(5)}, other, 0},
		"two known attempts, the next": {[]*pleg.Pod{attempts(5, 3)}, attempts(6, 5), 0},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(tc.old...)
			for range 3 {
				f.list(tc.cur)
				f.settleAll(errInspect)
			}
			f.listAndSettle(tc.cur)
			kit.RequireMetric(t, f.metrics, tc.want, "pleg_missed_attempts_total")
		})
	}
}
