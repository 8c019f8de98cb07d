package differ_test

import (
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

const (
	running      = "c=running /s=running"
	exited       = "c=exited /s=running"
	startedWords = "Started(c) Started(/s)"
	removedWords = "Died(c) Removed(c) Died(/s) Removed(/s)"
)

// step is a step in the life of pod a: what a listing has of it, what the
// inspector answers, or a check of what the differ offers.
type step func(t *testing.T, f *fixture)

func list(words string) step {
	return func(_ *testing.T, f *fixture) { f.list(plegtest.Pod("a", words)) }
}

// want requires one change that needs an inspection.
func want(words string) step {
	return func(t *testing.T, f *fixture) { f.requireChange(t, "a", words); f.requireNoChange(t) }
}

// wantKnown requires one change that needs no inspection.
func wantKnown(words string) step {
	return func(t *testing.T, f *fixture) { f.requireKnownChange(t, "a", words); f.requireNoChange(t) }
}

var (
	unlist     step = func(_ *testing.T, f *fixture) { f.list() }
	succeed    step = func(_ *testing.T, f *fixture) { f.settle("a", nil) }
	fail       step = func(_ *testing.T, f *fixture) { f.settle("a", errInspect) }
	request    step = func(_ *testing.T, f *fixture) { f.requestReinspect("a") }
	wantNone   step = func(t *testing.T, f *fixture) { f.requireNoChange(t) }
	start      step = func(t *testing.T, f *fixture) { list(running)(t, f); want(startedWords)(t, f) }
	wantRemove      = wantKnown(removedWords)
)

var podCases = map[string][]step{
	"unchanged pod gives nothing":                          {start, succeed, list(running), wantNone, list(running), wantNone},
	"only the difference is a change":                      {start, succeed, list(exited), want("Died(c)"), succeed, list(exited), wantNone},
	"created container is inspected":                       {list("c=created"), want("Created(c)"), succeed, list("c=unknown"), wantNone, list("c=running"), want("Started(c)")},
	"after a failure the next listing finds the change":    {start, fail, wantNone, list(running), want(startedWords), succeed, wantNone, list(running), wantNone},
	"retry has the newest state":                           {start, succeed, list(exited), want("Died(c)"), fail, list("d=running c=exited /s=running"), want("Died(c) Started(d)")},
	"failed change that is undone gives one PodSync":       {start, succeed, list(exited), want("Died(c)"), fail, list(running), want("PodSync"), succeed, list(running), wantNone},
	"request gives one PodSync at the next listing":        {start, succeed, request, wantNone, list(running), want("PodSync"), succeed, list(running), wantNone},
	"request together with a change gives the change":      {start, succeed, request, list(exited), want("Died(c)"), succeed, list(exited), wantNone},
	"request during an inspection waits for the next list": {start, request, succeed, wantNone, list(running), want("PodSync")},
	"request and listing during an inspection":             {start, request, list(running), wantNone, succeed, want("PodSync")},
	"request for an unknown pod":                           {request, list(running), want(startedWords), succeed, list(running), wantNone},
	"change in flight is offered once the inspection ends": {start, list(exited), wantNone, succeed, want("Died(c)"), succeed, wantNone},
	"changes in flight are merged":                         {start, list(exited), list("c=exited /s=exited"), list("d=running c=exited /s=running"), wantNone, succeed, want("Died(c) Started(d)"), succeed, wantNone},
	"change in flight that is undone gives nothing":        {start, list(exited), list(running), succeed, wantNone, list(running), wantNone},
	"change in flight waits for a listing after a failure": {start, list(exited), fail, wantNone, list(exited), want("Died(c) Started(/s)")},
	"removed":                              {start, succeed, unlist, wantRemove, succeed, unlist, wantNone},
	"removed after it exited":              {list("c=exited /s=exited"), want("Died(c) Died(/s)"), succeed, unlist, wantKnown("Removed(c) Removed(/s)")},
	"removed and back":                     {start, succeed, unlist, wantRemove, succeed, list(running), want(startedWords)},
	"removed in flight":                    {start, unlist, wantNone, succeed, wantRemove, succeed, wantNone, unlist, wantNone},
	"removed in flight and back unchanged": {start, unlist, list(running), succeed, wantNone},
	"removed in flight and back with another container": {start, unlist, list("d=running /s=running"), succeed, want("Died(c) Removed(c) Started(d)")},
	"back while its removal is in flight":               {start, succeed, unlist, wantRemove, list(running), wantNone, succeed, want(startedWords)},
	"removed after a failed inspection":                 {start, succeed, list(exited), want("Died(c)"), fail, unlist, wantRemove, succeed, unlist, wantNone},
	"removed before any inspection succeeded":           {start, fail, unlist, wantKnown("PodSync"), succeed, unlist, wantNone},
	"removed before it had a container":                 {list(""), wantNone, unlist, wantNone},
	"removed after its last container":                  {list("c=exited"), want("Died(c)"), succeed, list(""), want("Removed(c)"), succeed, unlist, wantKnown("")},
	"removed after a request":                           {start, succeed, request, unlist, wantRemove},
}

func TestChangesOfAPod(t *testing.T) {
	for name, steps := range podCases {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			for i, step := range steps {
				if step(t, f); t.Failed() {
					t.Fatalf("at step %d", i)
				}
			}
		})
	}
}

func TestChangeHasTheNewestObservation(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		pod := plegtest.Pod("a", "c=running")
		f.list(pod)
		if c := f.requireChange(t, "a", "Started(c)"); c.Pod != pod || !c.At.Equal(at(1)) || c.Reinspect {
			t.Errorf("change = %+v, want the listed pod at %v, not a reinspection", c, at(1))
		}
		f.list(plegtest.Pod("a", "c=exited"))
		newest := plegtest.Pod("a", "")
		f.list(newest)
		f.settle("a", nil)
		if c := f.requireChange(t, "a", "Died(c) Removed(c)"); c.Pod != newest || !c.At.Equal(at(3)) {
			t.Errorf("change = %+v, want the pod of the newest listing at %v", c, at(3))
		}
		f.settle("a", nil)
		f.list()
		if c := f.requireKnownChange(t, "a", ""); !c.At.Equal(at(4)) {
			t.Errorf("removal at %v, want %v", c.At, at(4))
		}
	})
}

func TestRequestLastsUntilAnInspectionSucceeds(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		pod := plegtest.Pod("a", "c=running")
		f.requestReinspect("a")
		for _, err := range []error{errInspect, errInspect, nil} {
			f.list(pod)
			if c := f.requireChange(t, "a", "Started(c)"); !c.Reinspect {
				t.Error("Reinspect = false, want true until an inspection has succeeded")
			}
			f.settle("a", err)
		}
		f.list(plegtest.Pod("a", "c=exited"))
		if c := f.requireChange(t, "a", "Died(c)"); c.Reinspect {
			t.Error("Reinspect = true after the reinspection succeeded")
		}
	})
}

func TestRequestOfUnlistedPodIsDropped(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.requestReinspect("a")
		f.list()
		f.list(plegtest.Pod("a", "c=running"))
		if c := f.requireChange(t, "a", "Started(c)"); c.Reinspect {
			t.Error("Reinspect = true, want the request dropped")
		}
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
