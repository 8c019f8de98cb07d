package invariants_test

import (
	"testing"
	"testing/synctest"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// TestListOvertakesEvent uses a container that is killed and removed at once. A list shows that before the
// event with its exit code comes.
func TestListOvertakesEvent(t *testing.T) {
	const wait = 2 * time.Second
	ended := pleg.Hint{UID: "a", Container: "c", State: pleg.StateExited, Status: &pleg.ContainerStatus{ID: "c", State: pleg.StateExited, ExitCode: 137}}
	other := pleg.Hint{UID: "a", Container: "b", State: pleg.StateExited, Others: []*pleg.ContainerStatus{ended.Status}}
	silent := pleg.Hint{UID: "a", Container: "c", State: pleg.StateExited}
	removed := pleg.Hint{UID: "a", Container: "c", State: pleg.StateExited, Removed: true}
	for name, tc := range map[string]struct {
		options pipeline.Options
		left    string // of the pod; empty if it is gone
		hints   []pleg.Hint
		breaks  bool // the event stream, before
		after   time.Duration
		code    bool
	}{
		"the code comes":             {pipeline.Options{Events: pipeline.EventsAuto}, "d=running", []pleg.Hint{ended}, false, wait / 4, true},
		"the code comes, of a pod":   {pipeline.Options{Events: pipeline.EventsAuto}, "", []pleg.Hint{ended}, false, wait / 4, true},
		"another's event has it":     {pipeline.Options{Events: pipeline.EventsAuto}, "d=running", []pleg.Hint{other}, false, wait / 4, true},
		"the removal comes":          {pipeline.Options{Events: pipeline.EventsAuto}, "d=running", []pleg.Hint{removed}, false, wait / 2, false},
		"the removal comes first":    {pipeline.Options{Events: pipeline.EventsAuto}, "d=running", []pleg.Hint{removed, ended}, false, wait / 4, true},
		"the end has no code":        {pipeline.Options{Events: pipeline.EventsAuto}, "d=running", []pleg.Hint{silent, removed}, false, wait / 4, false},
		"the stream is broken":       {pipeline.Options{Events: pipeline.EventsAuto}, "d=running", []pleg.Hint{ended}, true, 0, false},
		"no events":                  {pipeline.Options{}, "d=running", []pleg.Hint{ended}, false, 0, false},
		"the kubelet waits for none": {pipeline.Options{Events: pipeline.EventsAuto, KubeletEvents: true}, "d=running", []pleg.Hint{ended}, false, 0, false},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			tc.options.RelistPeriod, tc.options.RelistPeriodWithEvents, tc.options.RelistThreshold = time.Hour, time.Hour, 3*time.Hour
			runtime := plegtest.New()
			tc.options.Runtime = runtime
			p := kit.New(t, tc.options)
			runtime.Set("a", "c=running "+tc.left)
			p.Start(t)
			time.Sleep(10 * time.Second) // the stream is up
			if tc.breaks {
				runtime.SetWatchFault(plegtest.Hang)
				runtime.EndWatches(errInspect)
				time.Sleep(time.Millisecond)
			}
			events := p.Events(t, 0)
			if tc.left == "" {
				runtime.Remove("a")
			} else {
				runtime.Set("a", tc.left)
			}
			p.RequestRelist("a")
			start := time.Now()
			go func() {
				time.Sleep(wait / 4)
				for _, h := range tc.hints {
					runtime.AnnounceHint(h)
				}
			}()
			ev := <-events
			for ev.Type != pleg.ContainerDied || ev.ContainerID != "c" {
				ev = <-events
			}
			if took := time.Since(start); took != tc.after || (ev.ExitCode != nil) != tc.code {
				t.Errorf("after %v: %+v, want it after %v, with a code: %v", took, ev, tc.after, tc.code)
			}
			time.Sleep(wait)
			synctest.Wait()
		})
	}
}

// An answer is as old as the beginning of its list: it covers no later change, and it takes nothing back if a
// newer answer has overtaken it.
func TestSlowLists(t *testing.T) {
	all := func(t *testing.T, p *kit.Pipeline) { go func() { _ = p.RelistAll(t.Context()) }() }
	one := func(_ *testing.T, p *kit.Pipeline) { p.RequestRelist("a") }
	for name, tc := range map[string]struct {
		slow, quick func(*testing.T, *kit.Pipeline)
	}{"of all pods": {all, one}, "of one pod": {one, all}} {
		kit.Bubble(t, name, func(t *testing.T) {
			runtime := plegtest.New()
			p := kit.New(t, pipeline.Options{Runtime: runtime, RelistPeriod: time.Hour})
			runtime.Set("a", "c=running")
			p.Start(t)
			time.Sleep(time.Minute)
			runtime.SetListFault(plegtest.Delay(time.Second))
			tc.slow(t, p)
			time.Sleep(time.Second / 2)
			changed := time.Now()
			time.Sleep(3 * time.Second)
			if promises.Fresh(p.Cache(), "a", changed) {
				t.Error("the cache is said to be newer than the list")
			}
			tc.slow(t, p)
			synctest.Wait()
			runtime.SetListFault(nil)
			runtime.Set("a", "c=exited")
			tc.quick(t, p)
			for range 2 {
				time.Sleep(time.Second * 3 / 4)
				if s, err := p.Cache().Get("a"); err != nil || s.Container("c").State != pleg.StateExited {
					t.Errorf("the cache has %+v, %v, want the end", s, err)
				}
			}
		})
	}
}
