package invariants_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// illBehaved is a runtime and a store. At each call it does what it should not.
type illBehaved struct {
	*plegtest.Runtime
	at func(call string)
}

func (r illBehaved) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	r.at("ListPods")
	return r.Runtime.ListPods(ctx)
}

func (r illBehaved) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	r.at("ListPod")
	return r.Runtime.ListPod(ctx, uid)
}

func (r illBehaved) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	r.at("PodStatus")
	return r.Runtime.PodStatus(ctx, pod, last)
}

func (r illBehaved) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	r.at("WatchEvents")
	return r.Runtime.WatchEvents(ctx,
		func() { opened(); r.at("opened") },
		func(h pleg.Hint) { hint(h); r.at("hint") })
}

func (r illBehaved) Calls() []pleg.Call { r.at("Calls"); return nil }
func (r illBehaved) Degraded() error    { r.at("Degraded"); return nil }

func (r illBehaved) Set(pleg.PodUID, *pleg.PodStatus, error, time.Time) { r.at("store") }
func (r illBehaved) Delete(pleg.PodUID, time.Time)                      { r.at("store") }
func (r illBehaved) Touch(pleg.PodUID, time.Time)                       { r.at("store") }
func (r illBehaved) Observe(time.Time, []pleg.PodUID)                   { r.at("store") }

// A panic, a Goexit or a block in the embedder's other methods stops no stage, and nobody
// who asks. (A store that blocks is waited for.)
func TestInvariantEmbeddersCodeIsContained(t *testing.T) {
	released := make(chan struct{})
	panics := func() { panic("test") }
	for name, tc := range map[string]struct{ asked, written func() }{
		"panics": {panics, panics},
		"Goexit": {runtime.Goexit, runtime.Goexit},
		"blocks": {func() { <-released }, func() {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released = make(chan struct{})
				defer close(released)
				calls := map[string]func(){"Calls": tc.asked, "Degraded": tc.asked, "store": tc.written}
				ill := illBehaved{plegtest.New(), func(call string) {
					if do := calls[call]; do != nil {
						do()
					}
				}}
				p := kit.New(t, pipeline.Options{Runtime: ill, Store: ill})
				events := p.Events(t, 0)
				ill.Runtime.Set("hung", "c=running")
				ill.SetPodFault("hung", plegtest.Hang)
				p.Start(t)
				kit.Relist(3)
				ill.Runtime.Set("fine", "c=running")
				kit.Relist(5) // the hung inspection is logged, with the runtime's calls
				kit.RequireEvents(t, events, "fine", "Started(c)")
				began := time.Now()
				p.Status()
				if healthy, _ := p.Healthy(); !healthy {
					t.Error("not healthy")
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("Status and Healthy took %v", took)
				}
				ill.Remove("fine")
				kit.Relist(2)
				kit.RequireEvents(t, events, "fine", "Died(c) Removed(c)")
			})
		})
	}
}

// A call that ends its goroutine, as t.FailNow in a fake does, costs one retry: neither the
// pod, nor the stream, nor Run.
func TestInvariantGoexitCostsOneRetry(t *testing.T) {
	for _, at := range []string{"ListPods", "ListPod", "PodStatus", "WatchEvents", "opened", "hint"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var left atomic.Int32 // how often
				r := illBehaved{plegtest.New(), func(call string) {
					if call == at && left.Add(-1) >= 0 {
						runtime.Goexit()
					}
				}}
				p := kit.New(t, pipeline.Options{Runtime: r, Events: pipeline.EventsRequire, RelistPeriodWithEvents: time.Minute})
				events := p.Events(t, 0)
				r.Runtime.Set("a", "c=running")
				r.Runtime.Set("b", "c=running")
				left.Store(2)
				p.StartBetweenLists(t)
				kit.Relist(20)
				kit.RequireEvents(t, events, "a", "Started(c)", "b", "Started(c)")
				left.Store(2)
				for range 3 { // two calls end, one works
					r.Announce("a", "c")
					p.RequestRelist("b")
					kit.Relist(2)
				}
				r.Runtime.Set("a", "c=exited")
				r.Runtime.Set("b", "c=exited")
				r.Announce("a", "c")
				p.RequestRelist("b")
				kit.Relist(60)
				kit.RequireEvents(t, events, "a", "Died(c)", "b", "Died(c)")
			})
		})
	}
}
