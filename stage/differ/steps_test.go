package differ_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

const (
	sandbox = "/s=running"
	both    = "c=exited d=running"
)

// begin lists a pod with only a sandbox, which is being inspected then.
var begin step = func(t *testing.T, f *fixture) { list(sandbox)(t, f); want("Started(/s)")(t, f) }

func TestCRIEventsOfAPod(t *testing.T) {
	testSteps(t, map[string][]step{
		"event retries a failed inspection": {
			list("c=running"), want("Started(c)"), fail, wantRelists(1), event(1, "c=exited", "c=exited"), want("Died(c)"), fail,
			whole(2, "c=exited", "c=exited"), wantWhole("Died(c)"), succeed, list("c=exited"), wantNone,
		},
		// The clock of a runtime may be coarse, and that of a test stands still.
		"start at the time of the list":   {have("c=running"), whole(0, "d=running", "c=running d=running"), wantWhole("Started(d)")},
		"end at the time of the list":     {have("c=running"), whole(0, "c=exited", "c=exited"), wantWhole("Died(c)")},
		"removal at the time of the list": {have("c=running"), whole(0, "c=removed", sandbox), told("Died(c) Removed(c) Started(/s)")},

		"requested reinspection ignores the status": {have("c=running"), request, whole(1, "c=exited", "c=exited"), wantReinspected("Died(c)")},
		"request outlives an event before the pod is known": {
			have(gone), request, event(-5, "c=running", "c=running"), wantNone, whole(1, "c=running", running), wantWhole(startedWords), succeed,
			list(running), wantReinspected("PodSync"),
		},
		"request for a gone pod is served once it is back": {
			have("c=running"), unlist, wantKnown("Died(c) Removed(c)"), request, succeed, whole(2, "d=running", "d=running"), wantWhole("Started(d)"), succeed,
			list("d=running"), wantReinspected("PodSync"),
		},

		"list brings a container back, and its event counts": {have(running), have(sandbox), have(running), event(1, "c=exited", exited), want("Died(c)")},
		"removal counts although a newer list had the container": {
			have(both), event(-1, "c=removed", "d=running"), told("Removed(c)"), list(both), wantNone,
		},
		"removed pod stays gone": {
			have("/s=exited"), event(5, "/s=removed", ""), wantKnown("Removed(/s)"), succeed,
			func(_ *testing.T, f *fixture) { // began before the event
				f.listings <- stage.Listing{At: at(1).Add(period / 10), Pods: podsOf("t=running")}
			},
			list("/s=exited"), wantNone, list("/t=running"), want("Started(/t)"),
		},
	})
}

// CRI events may arrive out of order. A container's state only moves forward.
func TestHintMovesNoStateBackward(t *testing.T) {
	testDiffer(t, all(
		have("c=exited d=running /s=exited"), whole(1, "d=running", "c=running d=running /s=running"), whole(2, "c=created", "c=created"), wantNone,
		whole(3, "d=exited", "c=running d=exited /s=running"), want("Died(d)"), // the status is outdated
	))
}

// A runtime may list a removed container for some milliseconds. An event that was wrong hides
// it for no longer than ten seconds.
func TestRemovedContainerIsIgnoredForTenSeconds(t *testing.T) {
	testDiffer(t, all(
		have(both), event(1, "c=removed", "d=running"), told("Removed(c)"),
		all(slices.Repeat([]step{list(both), wantNone, wait(period)}, 10)...), list(both), want("Died(c)"),
	))
}

// A container may have exited by the time its start is announced, and the end may be
// announced first: then its status shows that it has run.
func TestStartAnnouncedAfterTheEnd(t *testing.T) {
	const created, unknown = "c=created /s=running", "c=unknown /s=running"
	late, end := whole(1, "c=running", exited), ran(1, "c=exited", exited)
	testSteps(t, map[string][]step{
		"new":                       {have(sandbox), late, told("Started(c)"), told("Died(c)"), wantNone},
		"created":                   {have(created), late, told("Started(c)"), told("Died(c)"), wantNone},
		"known to run":              {have(running), late, told("Died(c)"), wantNone},
		"known to have exited":      {have(exited), late, wantNone},
		"after the end":             {have(created), end, ran(2, "c=running", exited), told("Started(c)"), told("Died(c)"), wantNone},
		"never":                     {have(sandbox), end, told("Started(c)"), told("Died(c)"), wantNone},
		"never, and it did not run": {have(created), whole(1, "c=exited", exited), told("Died(c)"), wantNone},
		"never, and a list did not show its state": {have(unknown), end, told("Died(c)"), wantNone},
		"before the end": {have(running), end, told("Died(c)"), wantNone},
		"of two, beside others": {
			have(sandbox), event(1, "a=running", "-"), event(1, "b=running", "-"), event(1, "c=running", "-"),
			list("a=created b=exited c=exited d=exited /s=running"),
			told("Created(a) Started(b) Started(c) Died(d)"), told("Died(b) Died(c)"), wantNone,
		},
		"known to have exited, another starts": {
			have(exited), event(1, "c=running", "-"), list("c=exited d=running /s=running"), told("Started(d)"), wantNone,
		},
		"without the pod, then listed":       {have(sandbox), event(1, "c=running", "-"), list(exited), told("Started(c)"), told("Died(c)"), wantNone},
		"without the pod, then listed alone": {have(sandbox), event(1, "c=running", "-"), alone(2, exited), told("Started(c)"), told("Died(c)"), wantNone},
	})
}

// The CRI events of a container that starts and exits during an inspection of its
// pod become one change each, of the time of the event.
func TestStepsDuringAnInspectionAreChanges(t *testing.T) {
	toldAt := func(tenths int, words string) step {
		return func(t *testing.T, f *fixture) {
			if c, want := f.requireChange(t, "a", words), at(1).Add(time.Duration(tenths)*time.Second/10); !c.At.Equal(want) {
				t.Errorf("%s at %v, want the time of its event %v", words, c.At, want)
			}
			f.settle("a", nil)
		}
	}
	testDiffer(t, all(
		begin, whole(1, "c=created", "c=created /s=running"), whole(2, "c=running", running), whole(3, "c=exited", exited), whole(4, "c=removed", sandbox),
		wantNone, touched(0), succeed,
		toldAt(1, "Created(c)"), toldAt(2, "Started(c)"), toldAt(3, "Died(c)"), toldAt(4, "Removed(c)"), wantNone,
	))
}

// Steps are what CRI events show during an inspection. If it fails, steps with the status of
// the whole pod are changes at once, others come with the next change.
func TestStepsSurviveAFailure(t *testing.T) {
	testSteps(t, map[string][]step{
		"all with a status": {
			begin, whole(1, "c=running", running), whole(2, "c=exited", exited), whole(3, "c=removed", sandbox), fail,
			told(startedWords), told("Died(c)"), told("Removed(c)"), wantNone,
		},
		"the start without": {
			begin, event(1, "c=running", running), whole(2, "c=exited", exited), whole(3, "c=removed", sandbox), fail,
			told(startedWords + " Died(c)"), told("Removed(c)"), wantNone,
		},
		"the end without": {
			begin, whole(1, "c=running", running), event(2, "c=exited", exited), event(3, "c=removed", sandbox), fail,
			told(startedWords), told("Died(c)"), told("Removed(c)"), wantNone,
		},
		"all without": {
			begin, event(1, "c=running", running), event(2, "c=exited", exited), event(3, "c=removed", sandbox), fail,
			wantNone, list(sandbox), told(startedWords + " Died(c) Removed(c)"), wantNone,
		},
		"then the pod is gone": {
			begin, event(1, "c=running", running), event(2, "c=exited", exited), event(3, "c=removed", sandbox), event(4, "/s=removed", ""), fail,
			told(startedWords + " Died(c) Removed(c) Died(/s) Removed(/s)"), wantNone,
		},
		"every retry fails": {
			have(sandbox), event(1, "c=running", running), want("Started(c)"), fail, event(2, "c=exited", exited), want("Started(c) Died(c)"), fail,
			list(sandbox), want("Started(c) Died(c) Removed(c)"), fail,
			whole(1, "d=running", "d=running /s=running"), told("Started(c) Died(c) Removed(c) Started(d)"), wantNone,
		},
		"a step with a status replaces the same without": {
			have(running), request, list(running), wantReinspected("PodSync"),
			event(1, "c=exited", exited), whole(2, "c=exited", exited), event(3, "d=running", "c=exited d=running /s=running"), fail, wantWhole("Died(c)"),
		},
		"a reinspection outlives the step of a gone pod": {
			begin, event(1, "/s=removed", ""), whole(2, "/t=running", "/t=running"), request, succeed,
			wantKnown("Died(/s) Removed(/s)"), succeed, wantReinspected("Started(/t)"),
		},
		"a listing neither hides a step nor becomes one": {
			begin, whole(1, "c=running", running), list("d=running /s=running"), list("d=exited /s=running"), succeed,
			told("Started(c)"), want("Died(c) Removed(c) Died(d)"),
		},
	})
}

// settleEach settles the inspection of pod a and of each change that follows, and returns the
// numbers of changes and of their events.
func (f *fixture) settleEach() (changes, events int) {
	for {
		f.settle("a", nil)
		c, ok := f.nextChange()
		if !ok {
			return changes, events
		}
		changes++
		events += len(c.Events)
	}
}

func TestStepsAreBounded(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		begin(t, f)
		const containers = 100
		words := sandbox
		for n := range containers {
			words = fmt.Sprintf("c%d=running %s", n, words)
			event(n+1, fmt.Sprintf("c%d=running", n), words)(t, f)
		}
		if changes, started := f.settleEach(); changes > 66 || started != containers {
			t.Errorf("%d changes have %d events, want at most 66 with all %d", changes, started, containers)
		}
		kit.RequireMetric(t, f.metrics, 0, "pleg_skipped_events_total")
	})
}

// What too many steps hide is counted.
func TestSkippedStepsAreCounted(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		begin(t, f)
		const lives = 50
		for n := range lives {
			c := fmt.Sprint("c", n)
			start := all(event(4*n+1, c+"=running", c+"=running /s=running"), event(4*n+2, c+"=running", c+"=running /s=running")) // repeated
			all(start, event(4*n+3, c+"=exited", c+"=exited /s=running"), event(4*n+4, c+"=removed", sandbox))(t, f)
		}
		_, told := f.settleEach()
		if skipped := int(kit.Metric(t, f.metrics, "pleg_skipped_events_total")); told == 3*lives || told+skipped != 3*lives {
			t.Errorf("%d events and %d skipped, want %d together", told, skipped, 3*lives)
		}
	})
}

// The memory of removed containers is bounded; a list clears it.
func TestManyRemovedPodsRequestARelist(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		remove := func(n int) {
			var pods []*pleg.Pod
			for i := range n {
				pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint(f.lists, "-", i)), fmt.Sprintf("c%d-%d=exited", f.lists, i)))
			}
			f.listAndSettle(pods...)
			for _, pod := range pods {
				f.sendObservation(goneAt(f, pod.UID, 1))
				f.settleAll(nil)
			}
			f.lister.takeRelisted()
		}
		remove(4000)
		remove(4000) // the list has cleared the first ones
		if got := f.lister.relists.Load(); got != 0 {
			t.Errorf("relists requested = %d, want none yet", got)
		}
		remove(4200)
		if got := f.lister.relists.Load(); got == 0 {
			t.Error("no relist requested")
		}
	})
}
