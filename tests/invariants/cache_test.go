package invariants_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// GetNewerThan is called half a second before a relist; the table has the time from
// the relist to the answer.
func TestInvariantFreshness(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(n *plegtest.Runtime)
		after  time.Duration
		err    error
	}{
		"unchanged":      {change: func(*plegtest.Runtime) {}},
		"changed":        {change: func(n *plegtest.Runtime) { n.Set("a", "c=exited") }},
		"gone":           {change: func(n *plegtest.Runtime) { n.Remove("a") }, err: pleg.ErrUnknownPod},
		"changed, fails": {change: func(n *plegtest.Runtime) { n.Set("a", "c=exited"); n.SetPodFault("a", plegtest.Fail(errInspect)) }, err: errInspect},
		"inspected slowly": {change: func(n *plegtest.Runtime) {
			n.Set("a", "c=exited")
			n.SetPodFault("a", plegtest.Delay(300*time.Millisecond))
		}, after: 300 * time.Millisecond},
		"longer than a period": {change: func(n *plegtest.Runtime) {
			n.Set("a", "c=exited")
			n.SetPodFault("a", plegtest.Delay(7500*time.Millisecond))
		}, after: 7500 * time.Millisecond},
		"hangs to its deadline": {change: func(n *plegtest.Runtime) { n.Set("a", "c=exited"); n.SetPodFault("a", plegtest.Hang) }, after: pipeline.DefaultInspectTimeout, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := kit.New(t, pipeline.Options{})
				r.Runtime.Set("a", "c=running")
				r.Start(t)
				synctest.Wait()
				time.Sleep(pipeline.DefaultRelistPeriod / 2)
				tc.change(r.Runtime)
				asked := time.Now()
				_, err := r.Cache().GetNewerThan(t.Context(), "a", asked)
				if !errors.Is(err, tc.err) {
					t.Errorf("GetNewerThan = %v, want %v", err, tc.err)
				}
				if got, want := time.Since(asked), pipeline.DefaultRelistPeriod/2+tc.after; got != want {
					t.Errorf("answered after %v, want %v", got, want)
				}
			})
		})
	}
}

// containment are faults that cost pod a one retry, or all pods one list.
var containment = map[string]struct {
	set  func(r *plegtest.Runtime)
	list bool // the fault is in the list
}{
	"panic in an inspection":      {set: podFault(plegtest.Panic("no"))},
	"Goexit in an inspection":     {set: podFault(func(context.Context) error { runtime.Goexit(); return nil })},
	"nil panic":                   {set: podFault(plegtest.Panic(nil))},
	"status with a nil sandbox":   {set: status(&pleg.PodStatus{UID: "a", Sandboxes: []*pleg.SandboxStatus{nil}})},
	"status with a nil container": {set: status(&pleg.PodStatus{UID: "a", Containers: []*pleg.ContainerStatus{nil}})},
	"hang":                        {set: podFault(plegtest.Hang)},
	"error":                       {set: podFault(plegtest.Fail(errInspect))},
	"panic in a list":             {list: true, set: func(r *plegtest.Runtime) { r.SetListFault(plegtest.Panic("no")) }},
	"list error":                  {list: true, set: func(r *plegtest.Runtime) { r.SetListFault(plegtest.Fail(errInspect)) }},
	"malformed list": {list: true, set: func(r *plegtest.Runtime) {
		malformed := plegtest.Pod("b", "c=running")
		malformed.Containers = slices.Insert(malformed.Containers, 0, nil)
		r.SetList([]*pleg.Pod{nil, {}, plegtest.Pod("a", "c=running"), malformed})
	}},
}

func podFault(f plegtest.Fault) func(r *plegtest.Runtime) {
	return func(r *plegtest.Runtime) { r.SetPodFault("a", f) }
}

func status(s *pleg.PodStatus) func(r *plegtest.Runtime) {
	return func(r *plegtest.Runtime) { r.SetStatus("a", s) }
}

// Each fault costs pod a one retry, or all pods one list; it costs pod b and the
// process nothing else.
func TestInvariantContainment(t *testing.T) {
	for name, tt := range containment {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := kit.New(t, pipeline.Options{InspectTimeout: pipeline.DefaultRelistPeriod / 2})
				events := r.Events(t, 0)
				r.Runtime.Set("a", "c=running")
				r.Runtime.Set("b", "c=running")
				r.Start(t)
				kit.RequireEvents(t, events, "a", "Started(c)", "b", "Started(c)")
				tt.set(r.Runtime)
				r.Runtime.Set("a", "c=exited")
				r.Runtime.Set("b", "c=exited")
				kit.Relist(1)
				if tt.list {
					kit.RequireEvents(t, events)
				} else {
					kit.RequireEvents(t, events, "b", "Died(c)")
				}
				r.Runtime.SetPodFault("a", nil)
				r.Runtime.SetStatus("a", nil)
				r.Runtime.SetListFault(nil)
				r.Runtime.SetList(nil)
				kit.Relist(1)
				if tt.list {
					kit.RequireEvents(t, events, "a", "Died(c)", "b", "Died(c)")
				} else {
					kit.RequireEvents(t, events, "a", "Died(c)")
				}
				if status, err := r.Cache().Get("a"); err != nil || status.Container("c") == nil {
					t.Errorf("cache = %+v, %v, want the status of the retry", status, err)
				}
			})
		})
	}
}
