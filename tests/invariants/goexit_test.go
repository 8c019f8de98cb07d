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

// exiting is a runtime that ends the goroutine of one call, as t.FailNow in a fake does.
type exiting struct {
	*plegtest.Runtime
	at   string
	left atomic.Int32 // how often
}

func (r *exiting) call(method string) {
	if r.at == method && r.left.Add(-1) >= 0 {
		runtime.Goexit()
	}
}

func (r *exiting) ListPods(ctx context.Context) ([]*pleg.Pod, error) {
	r.call("ListPods")
	return r.Runtime.ListPods(ctx)
}

func (r *exiting) ListPod(ctx context.Context, uid pleg.PodUID) (*pleg.Pod, error) {
	r.call("ListPod")
	return r.Runtime.ListPod(ctx, uid)
}

func (r *exiting) PodStatus(ctx context.Context, pod *pleg.Pod, last *pleg.PodStatus) (*pleg.PodStatus, error) {
	r.call("PodStatus")
	return r.Runtime.PodStatus(ctx, pod, last)
}

func (r *exiting) WatchEvents(ctx context.Context, opened func(), hint func(pleg.Hint)) error {
	r.call("WatchEvents")
	return r.Runtime.WatchEvents(ctx,
		func() { opened(); r.call("opened") },
		func(h pleg.Hint) { hint(h); r.call("hint") })
}

// A call that ends its goroutine costs one retry: neither the pod, nor the stream, nor Run.
func TestInvariantGoexitCostsOneRetry(t *testing.T) {
	for _, at := range []string{"ListPods", "ListPod", "PodStatus", "WatchEvents", "opened", "hint"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &exiting{Runtime: plegtest.New(), at: at}
				p := kit.New(t, pipeline.Options{Runtime: r, Events: pipeline.EventsRequire, RelistPeriodWithEvents: time.Minute})
				events := p.Events(t, 0)
				r.Set("a", "c=running")
				r.Set("b", "c=running")
				r.left.Store(2)
				p.StartBetweenLists(t)
				kit.Relist(20)
				kit.RequireEvents(t, events, "a", "Started(c)", "b", "Started(c)")
				r.left.Store(2)
				for range 3 { // two calls end, one works
					r.Announce("a", "c")
					p.RequestRelist("b")
					kit.Relist(2)
				}
				r.Set("a", "c=exited")
				r.Set("b", "c=exited")
				r.Announce("a", "c")
				p.RequestRelist("b")
				kit.Relist(60)
				kit.RequireEvents(t, events, "a", "Died(c)", "b", "Died(c)")
				if healthy, err := p.Healthy(); !healthy {
					t.Errorf("not healthy: %v", err)
				}
			})
		})
	}
}
