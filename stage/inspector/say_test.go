package inspector_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A list may overtake the event of an end. The end of a removed container then waits for that event, for
// at most two seconds; the cache and other pods do not.
func TestEndWaitsForItsEvent(t *testing.T) {
	const wait = 2 * time.Second
	died := []pleg.Event{
		{Type: pleg.ContainerDied, PodUID: "a", ContainerID: "c"},
		{Type: pleg.ContainerRemoved, PodUID: "a", ContainerID: "c"},
		{Type: pleg.ContainerDied, PodUID: "a", ContainerID: "s", Sandbox: true}, // it has no exit code to wait for
	}
	left := stage.Change{UID: "a", Pod: plegtest.Pod("a", "d=running"), At: at(2)}
	gone := stage.Change{UID: "a", At: at(2)}
	says := func(f *fixture) {
		f.cache.KeepRemoved(&pleg.ContainerStatus{ID: "c", State: pleg.StateExited, ExitCode: 137})
	}
	ends, goes := func(f *fixture) { f.cache.NoteRemoved("c", false) }, func(f *fixture) { f.cache.NoteRemoved("c", true) }
	for name, tc := range map[string]struct {
		change stage.Change
		before func(f *fixture) // the change
		then   func(f *fixture) // half a second after it
		after  time.Duration
		code   bool
	}{
		"the event comes":             {left, nil, says, wait / 4, true},
		"the pod is gone":             {gone, nil, says, wait / 4, true},
		"the event has come":          {left, says, nil, 0, true},
		"it has no code":              {left, nil, func(f *fixture) { ends(f); goes(f) }, wait / 4, false},
		"it had no code":              {left, func(f *fixture) { ends(f); goes(f) }, nil, 0, false},
		"the removal comes alone":     {left, nil, goes, wait / 2, false},
		"the removal comes first":     {left, nil, func(f *fixture) { goes(f); time.Sleep(wait / 10); says(f) }, wait/4 + wait/10, true},
		"the removal comes last":      {left, nil, ends, wait, false},
		"another event comes":         {left, nil, func(f *fixture) { f.cache.NoteRemoved("e", true) }, wait, false},
		"no event comes":              {left, nil, nil, wait, false},
		"no event can come":           {left, func(f *fixture) { f.cache.AnnounceRemoved(false) }, nil, 0, false},
		"the stream of events breaks": {left, nil, func(f *fixture) { f.cache.AnnounceRemoved(false) }, wait / 4, false},
		"nothing more comes":          {left, nil, func(f *fixture) { f.finish() }, wait, false},
		"the process ends":            {left, nil, func(f *fixture) { f.cancel() }, wait / 4, false},
		"the process ends, 2":         {left, nil, func(f *fixture) { f.cancel() }, wait / 4, false}, // a select takes either channel
		"the process ends, 3":         {left, nil, func(f *fixture) { f.cancel() }, wait / 4, false},
		"the process ends, 4":         {gone, nil, func(f *fixture) { f.cancel() }, wait / 4, false},
		"the process ends, 5":         {gone, nil, func(f *fixture) { f.cancel() }, wait / 4, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			f.cache.AnnounceRemoved(true)
			f.do(change(1, plegtest.Pod("a", "c=running d=running")))
			if tc.before != nil {
				tc.before(f)
			}
			start := time.Now()
			tc.change.Events = slices.Clone(died) // the inspector fills them
			if tc.change.Pod == nil {
				f.gone <- tc.change
			} else {
				f.runtime.SetPod(tc.change.Pod)
				f.inspect <- tc.change
			}
			synctest.Wait()
			if s, err := f.cache.Get("a"); s.Container("c") != nil || (err != nil) != (tc.change.Pod == nil) {
				t.Errorf("the cache has %+v, %v, want what the change shows", s, err)
			}
			if tc.after > 0 {
				other := change(2, plegtest.Pod("other", "c=exited"))
				if s, _, _ := f.do(other); s.UID != "other" || time.Since(start) > 0 {
					t.Errorf("another pod was settled after %v, want at once", time.Since(start))
				}
				f.stop <- stage.Cancel{UID: "a", Gone: true} // the differ does not know that the inspection has ended
			}
			if tc.then != nil {
				time.Sleep(wait / 4)
				tc.then(f)
			}
			o := <-f.outcomes
			if got := time.Since(start); got != tc.after {
				t.Errorf("the end was published after %v, want %v", got, tc.after)
			}
			if code := o.Events[0].ExitCode; (code != nil) != tc.code || code != nil && *code != 137 {
				t.Errorf("the events are %+v, want the exit code: %v", o.Events, tc.code)
			}
			if s := f.end(); s.UID != "a" || s.How != stage.Committed {
				t.Errorf("settled %+v, want the commit", s)
			}
		})
	}
}

// The ends of several containers wait for the events of all of them, in any order.
func TestEndsWaitForAllEvents(t *testing.T) {
	for _, order := range [][]pleg.ContainerID{{"c", "d"}, {"d", "c"}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{})
			f.cache.AnnounceRemoved(true)
			f.do(change(1, plegtest.Pod("a", "c=running d=running e=running")))
			left := stage.Change{UID: "a", Pod: plegtest.Pod("a", "e=running"), At: at(2)}
			for _, id := range order {
				left.Events = append(left.Events, pleg.Event{Type: pleg.ContainerDied, PodUID: "a", ContainerID: id})
			}
			f.runtime.SetPod(left.Pod)
			start := time.Now()
			f.inspect <- left
			for _, id := range []pleg.ContainerID{"c", "d"} {
				time.Sleep(time.Second / 4)
				f.cache.KeepRemoved(&pleg.ContainerStatus{ID: id, State: pleg.StateExited})
			}
			o := <-f.outcomes
			if time.Since(start) != time.Second/2 || o.Events[0].ExitCode == nil || o.Events[1].ExitCode == nil {
				t.Errorf("after %v: %+v, want the codes of both", time.Since(start), o.Events)
			}
			f.end()
		})
	}
}
