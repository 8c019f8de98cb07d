package differ_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	running      = "c=running /s=running"
	exited       = "c=exited /s=running"
	startedWords = "Started(c) Started(/s)"
	removedWords = "Died(c) Removed(c) Died(/s) Removed(/s)"
)

// gone are the words of a pod that a list lacks.
const gone = "absent"

// step is a step in the life of pod a: what a list or a CRI event has of it, what the
// inspector answers, or a check of what the differ offers.
type step func(t *testing.T, f *fixture)

func testSteps(t *testing.T, cases map[string][]step) {
	t.Helper()
	for name, steps := range cases {
		runDiffer(t, name, all(steps...))
	}
}

// all does one step after the other.
func all(steps ...step) step {
	return func(t *testing.T, f *fixture) {
		for i, step := range steps {
			if step(t, f); t.Failed() {
				t.Fatalf("at step %d", i)
			}
		}
	}
}

func podsOf(words string) []*pleg.Pod {
	if words == gone {
		return nil
	}
	return []*pleg.Pod{plegtest.Pod("a", words)}
}

func list(words string) step { return func(_ *testing.T, f *fixture) { f.list(podsOf(words)...) } }

// have is a list whose changes are inspected.
func have(words string) step {
	return func(_ *testing.T, f *fixture) { f.listAndSettle(podsOf(words)...) }
}

// alone is a list of the pod alone. As in the other observations, n is the time in tenths
// of a second since the newest listing.
func alone(n int, words string) step {
	return func(_ *testing.T, f *fixture) {
		o := goneAt(f, "a", n)
		if words != gone {
			o.Pod = plegtest.Pod("a", words)
		}
		f.sendObservation(o)
	}
}

// event is a CRI event, whole one with the status of the pod, and ran one whose containers
// have run.
func event(n int, what, words string) step {
	return func(_ *testing.T, f *fixture) { f.sendHint(n, hint("a", what, words)) }
}

func whole(n int, what, words string) step {
	return func(_ *testing.T, f *fixture) { f.sendHint(n, withStatus(hint("a", what, words))) }
}

func ran(n int, what, words string) step {
	return func(_ *testing.T, f *fixture) { f.sendHint(n, hasRun(hint("a", what, words))) }
}

func wait(d time.Duration) step { return func(*testing.T, *fixture) { time.Sleep(d) } }

// wantChange requires one change, of the kind that is checks.
func wantChange(words string, is func(stage.Change) bool) step {
	return func(t *testing.T, f *fixture) {
		if c := f.requireChange(t, "a", words); !is(c) {
			t.Errorf("change of another kind: %+v", c)
		}
		f.requireNoChange(t)
	}
}

// want requires a change that needs an inspection, and wantReinspected one whose inspection
// was requested.
func want(words string) step {
	return wantChange(words, func(c stage.Change) bool { return c.Pod != nil && c.Status == nil && !c.Reinspect })
}

func wantReinspected(words string) step {
	return wantChange(words, func(c stage.Change) bool { return c.Status == nil && c.Reinspect })
}

// wantWhole requires a change with the status of a CRI event, and wantKnown a removal.
func wantWhole(words string) step {
	return wantChange(words, func(c stage.Change) bool { return c.Status != nil })
}

func wantKnown(words string) step {
	return wantChange(words, func(c stage.Change) bool { return c.Pod == nil })
}

// told requires a change, whose inspection succeeds if it needs one.
func told(words string) step {
	return func(t *testing.T, f *fixture) { f.settle(f.requireChange(t, "a", words).UID, nil) }
}

// wantRelists requires the number of lists that were requested since the last such step.
func wantRelists(n int64) step {
	return func(t *testing.T, f *fixture) {
		synctest.Wait()
		if got := f.lister.relists.Swap(0); got != n {
			t.Errorf("relists requested = %d, want %d", got, n)
		}
	}
}

// touched requires that the cache covers the pod with a listing; 0 is none.
func touched(listing int) step {
	return func(t *testing.T, f *fixture) {
		if got, ok := f.cache.touched["a"]; ok != (listing > 0) || ok && !got.Equal(at(listing)) {
			t.Errorf("touched at %v (%v), want listing %d", got, ok, listing)
		}
	}
}

var (
	unlist          = list(gone)
	succeed    step = func(_ *testing.T, f *fixture) { f.settle("a", nil) }
	fail       step = func(_ *testing.T, f *fixture) { f.settle("a", errInspect) }
	request    step = func(_ *testing.T, f *fixture) { f.differ.RequestReinspect("a"); synctest.Wait() }
	wantNone   step = func(t *testing.T, f *fixture) { f.requireNoChange(t) }
	start      step = func(t *testing.T, f *fixture) { list(running)(t, f); want(startedWords)(t, f) }
	wantRemove      = wantKnown(removedWords)
)

// TestModelLockstep has what happens to a pod list by list; this is the rest.
func TestChangesOfAPod(t *testing.T) {
	testSteps(t, map[string][]step{
		"created container is inspected":                       {list("c=created"), want("Created(c)"), succeed, list("c=unknown"), wantNone, list("c=running"), want("Started(c)")},
		"request asks for a list":                              {start, succeed, request, wantRelists(1)},
		"request together with a change gives the change":      {start, succeed, request, list(exited), wantReinspected("Died(c)"), succeed, list(exited), wantNone},
		"request during an inspection waits for the next list": {start, request, succeed, wantNone, list(running), wantReinspected("PodSync")},
		"request whose inspection fails is served by the retry": {
			start, succeed, request, list(running), wantReinspected("PodSync"), fail, list(running), wantReinspected("PodSync"),
		},
		"event without a change in flight, then one":           {start, event(2, "c=running", running), list(exited), succeed, want("Died(c)")},
		"back to created is no creation":                       {start, succeed, list("c=created /s=running"), want("Changed(c)")},
		"request during an inspection that fails":              {start, request, fail, list(running), wantReinspected(startedWords)},
		"request and listing during an inspection":             {start, request, list(running), wantNone, succeed, wantReinspected("PodSync")},
		"request of an unlisted pod is dropped":                {request, unlist, list(running), want(startedWords)},
		"request of a pod that is then listed alone":           {unlist, request, alone(2, running), want(startedWords), succeed, list(running), wantNone},
		"change in flight is offered once the inspection ends": {start, list(exited), wantNone, succeed, want("Died(c)"), succeed, wantNone},
		"changes in flight are merged":                         {start, list(exited), list("c=exited /s=exited"), list("d=running c=exited /s=running"), wantNone, succeed, want("Died(c) Started(d)"), succeed, wantNone},
		"change in flight that is undone gives nothing":        {start, list(exited), list(running), succeed, wantNone, list(running), wantNone},
		"change in flight waits for a listing after a failure": {start, list(exited), fail, wantNone, list(exited), want("Died(c) Started(/s)")},
		"unchanged in flight, covered after the inspection":    {start, list(running), list(running), touched(0), succeed, touched(3)},
		"unchanged in flight, and the inspection fails":        {start, list(running), fail, touched(0)},
		"removed and back":                                     {start, succeed, unlist, wantRemove, succeed, list(running), want(startedWords)},
		"removed in flight":                                    {start, unlist, wantNone, succeed, wantRemove, succeed, wantNone, unlist, wantNone},
		"removed in flight and back unchanged":                 {start, unlist, list(running), succeed, wantNone},
		"removed in flight and back with another container":    {start, unlist, list("d=running /s=running"), succeed, want("Died(c) Removed(c) Started(d)")},
		"back while its removal is in flight":                  {start, succeed, unlist, wantRemove, list(running), wantNone, succeed, want(startedWords)},
		"removed while its inspection hangs":                   {start, succeed, list(exited), want("Died(c)"), unlist, hang, wantRemove},
		"removed before it had a container":                    {list(""), wantNone, unlist, wantNone},
		"removed after its last container":                     {list("c=exited"), want("Died(c)"), succeed, list(""), want("Removed(c)"), succeed, unlist, wantKnown("")},
		"removed after a request":                              {start, succeed, request, unlist, wantRemove},
	})
}

// What lists show, lack and show again has a life in each of them, as in the kubelet.
func TestFlappingLists(t *testing.T) {
	flap := func(first, second, events, back string) []step {
		return slices.Concat([]step{have(first)}, slices.Repeat([]step{list(second), told(events), list(first), told(back)}, 3))
	}
	testSteps(t, map[string][]step{
		"a container":       flap("c=running d=running", "d=running", "Died(c) Removed(c)", "Started(c)"),
		"a pod":             flap("c=running", gone, "Died(c) Removed(c)", "Started(c)"),
		"entries of a UID":  flap("c=running", "d=running", "Died(c) Removed(c) Started(d)", "Died(d) Removed(d) Started(c)"),
		"a dead container":  flap("c=exited d=running", "d=running", "Removed(c)", "Died(c)"),
		"back and it lives": flap("c=exited d=running", "c=running d=running", "Started(c)", "Died(c)"),
	})
}

func TestPodListedTwiceCountsOnce(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "c=running"), plegtest.Pod("b", ""), plegtest.Pod("a", "c=exited"))
		f.requireChange(t, "a", "Started(c)")
		f.settle("a", nil)
		f.requireNoChange(t)
		if f.cache.pending[0] != "a" || len(f.cache.pending) != 1 {
			t.Errorf("pending = %v, want pod a once", f.cache.pending)
		}
	})
}

func TestRunningPodsAreInspectedBeforeExitedOnes(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("exited", "c=exited /s=exited"), plegtest.Pod("running", "c=running"),
			plegtest.Pod("exited2", "c=exited"), plegtest.Pod("ready", "/s=running"))
		var order []pleg.PodUID
		for range 4 {
			order = append(order, (<-f.inspect).UID)
		}
		want := [4]pleg.PodUID{"running", "ready", "exited", "exited2"}
		if [4]pleg.PodUID(order) != want {
			t.Errorf("order = %v, want %v", order, want)
		}
	})
}
