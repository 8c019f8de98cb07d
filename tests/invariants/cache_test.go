package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// Each pod is asked for half a second before a relist; the table says how long
// after it the answer comes.
func TestInvariantFreshness(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(n *node)
		after  time.Duration
		err    error
	}{
		"unchanged":             {change: func(*node) {}},
		"changed":               {change: func(n *node) { n.set("a", "c=exited") }},
		"gone":                  {change: func(n *node) { n.remove("a") }},
		"changed, fails":        {change: func(n *node) { n.set("a", "c=exited"); n.on("a", failing(errInspect)) }, err: errInspect},
		"inspected slowly":      {change: func(n *node) { n.set("a", "c=exited"); n.on("a", takes(300*time.Millisecond)) }, after: 300 * time.Millisecond},
		"longer than a period":  {change: func(n *node) { n.set("a", "c=exited"); n.on("a", takes(7500*time.Millisecond)) }, after: 7500 * time.Millisecond},
		"hangs to its deadline": {change: func(n *node) { n.set("a", "c=exited"); n.on("a", hung) }, after: pipeline.DefaultInspectTimeout, err: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipeline.Options{})
				r.node.set("a", "c=running")
				r.run(t)
				time.Sleep(relistPeriod / 2)
				tc.change(r.node)
				asked := time.Now()
				_, err := r.Cache().GetNewerThan(t.Context(), "a", asked)
				if !errors.Is(err, tc.err) {
					t.Errorf("GetNewerThan = %v, want %v", err, tc.err)
				}
				if got, want := time.Since(asked), relistPeriod/2+tc.after; got != want {
					t.Errorf("answered after %v, want %v", got, want)
				}
			})
		})
	}
}

func TestInvariantFreshnessEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		r.node.set("a", "c=running")
		r.node.on("a", hung)
		r.run(t)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := r.Cache().GetNewerThan(ctx, "a", start.Add(-1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("GetNewerThan = %v, want the end of its context", err)
		}
		if got := time.Since(start); got != 10*time.Second {
			t.Errorf("ended after %v, want 10s", got)
		}
	})
}

// The first inspection takes 3.5 s, while three more listings show three more
// states: it must not end up over them.
func TestInvariantNewestObservationWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		events := r.subscribe(t, 0)
		r.node.set("a", "c=running")
		r.node.set("gone", "c=running")
		slow := takes(3500 * time.Millisecond)
		r.node.on("a", slow)
		r.node.on("gone", slow)
		r.run(t)
		start := time.Now()
		r.node.on("a", nil)
		for n := range 3 {
			r.node.set("a", fmt.Sprintf("d%d=running c=exited", n))
			r.node.remove("gone")
			r.relist()
		}
		requireTold(t, events)
		time.Sleep(500 * time.Millisecond) // now the first inspections end
		requireTold(t, events,
			"a", "Started(c) Died(c) Started(d2)",
			"gone", "Started(c) Died(c) Removed(c)")
		newest := start.Add(3 * relistPeriod)
		for range 20 {
			status, err := r.Cache().Get("a")
			if err != nil || !status.ObservedAt.Equal(newest) || status.Container("d2") == nil {
				t.Fatalf("cache = %+v, %v, want what the listing of %v showed", status, err, newest)
			}
			if status, err := r.Cache().Get("gone"); err != nil || status.Name != "" {
				t.Fatalf("cache of the gone pod = %+v, %v, want nothing", status, err)
			}
			time.Sleep(relistPeriod / 4)
		}
		if inspected, _ := r.node.calls("a"); inspected != 2 {
			t.Errorf("inspections = %d, want 2: the first and the newest", inspected)
		}
		requireTold(t, events)
	})
}

// Each fault costs pod a one retry; pod b and the process notice nothing.
func TestInvariantContainment(t *testing.T) {
	inspection := func(h hook) func(n *node) { return func(n *node) { n.on("a", h) } }
	list := func(h func() ([]*pleg.Pod, error)) func(n *node) {
		return func(n *node) {
			n.onLists(func(context.Context) ([]*pleg.Pod, error) { n.onLists(nil); return h() })
		}
	}
	for name, tc := range map[string]struct {
		fault func(n *node)
		late  bool // the fault is in the list, and costs all pods a period
	}{
		"panic in an inspection": {fault: inspection(func(context.Context, *pleg.Pod) (*pleg.PodStatus, error) { panic("no") })},
		"nil panics":             {fault: inspection(func(context.Context, *pleg.Pod) (*pleg.PodStatus, error) { panic(nil) })},
		"status with holes": {fault: inspection(func(_ context.Context, pod *pleg.Pod) (*pleg.PodStatus, error) {
			return &pleg.PodStatus{UID: pod.UID, Sandboxes: []*pleg.SandboxStatus{nil}}, nil
		})},
		"status with a hole for a container": {fault: inspection(func(_ context.Context, pod *pleg.Pod) (*pleg.PodStatus, error) {
			return &pleg.PodStatus{UID: pod.UID, Containers: []*pleg.ContainerStatus{nil}}, nil
		})},
		"hang":            {fault: inspection(hung)},
		"error":           {fault: inspection(failing(errInspect))},
		"panic in a list": {late: true, fault: list(func() ([]*pleg.Pod, error) { panic("no") })},
		"list error":      {late: true, fault: list(func() ([]*pleg.Pod, error) { return nil, errInspect })},
		"list with holes": {late: true, fault: list(func() ([]*pleg.Pod, error) {
			holes := plegtest.Pod("b", "c=running")
			holes.Containers = slices.Insert(holes.Containers, 0, nil)
			return []*pleg.Pod{nil, {}, plegtest.Pod("a", "c=running"), holes}, nil
		})},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, pipeline.Options{InspectTimeout: relistPeriod / 2})
				events := r.subscribe(t, 0)
				r.node.set("a", "c=running")
				r.node.set("b", "c=running")
				r.run(t)
				requireTold(t, events, "a", "Started(c)", "b", "Started(c)")
				tc.fault(r.node)
				r.node.set("a", "c=exited")
				r.node.set("b", "c=exited")
				r.relist()
				if !tc.late {
					requireTold(t, events, "b", "Died(c)")
					r.node.on("a", nil)
					r.relist()
					requireTold(t, events, "a", "Died(c)")
				} else {
					requireTold(t, events)
					r.relist()
					requireTold(t, events, "a", "Died(c)", "b", "Died(c)")
				}
				if status, err := r.Cache().Get("a"); err != nil || status.Container("c") == nil {
					t.Errorf("cache = %+v, %v, want the status of the retry", status, err)
				}
				if err := r.stop(); !errors.Is(err, context.Canceled) {
					t.Errorf("Run = %v, want %v", err, context.Canceled)
				}
			})
		})
	}
}
