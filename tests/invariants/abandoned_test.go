package invariants_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// A call of the runtime that ignores its context is named, and keeps Run from returning for a
// moment only.
func TestRunNamesTheCallThatIgnoresItsContext(t *testing.T) {
	for method, block := range map[string]func(r *plegtest.Runtime, f plegtest.Fault){
		"ListPods":    (*plegtest.Runtime).SetListFault,
		"PodStatus":   (*plegtest.Runtime).SetInspectFault,
		"WatchEvents": (*plegtest.Runtime).SetWatchFault,
	} {
		kit.Bubble(t, method, func(t *testing.T) {
			rt, release := plegtest.New(), make(chan struct{})
			defer close(release)
			block(rt, plegtest.Block(release))
			rt.Set("a", "c=running")
			r := kit.New(t, pipeline.Options{Runtime: rt, Events: pipeline.EventsAuto})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			time.Sleep(time.Minute)
			cancelled := time.Now()
			cancel()
			err := <-ended
			if err == nil || !strings.Contains(err.Error(), "ignore their context") || !strings.Contains(err.Error(), method) {
				t.Errorf("Run = %v, want an error that names %s", err, method)
			}
			if took := time.Since(cancelled); took > 2*time.Second {
				t.Errorf("Run returned after %v, want a second", took)
			}
		})
	}
}

// A list that ignores its context has failed: it is counted, logged once, and in the status.
func TestListThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt, release := plegtest.New(), make(chan struct{})
		var log kit.Log
		r := kit.New(t, pipeline.Options{Runtime: rt, ListTimeout: 10 * time.Second, RelistThreshold: time.Minute, Logger: log.Logger()})
		rt.Set("a", "c=running")
		r.Start(t)
		kit.Relist(1)
		rt.SetListFault(plegtest.Block(release))
		before := rt.Counts().Lists
		time.Sleep(2 * time.Minute)
		log.RequireLines(t, 1, "runtime call ignores its context")
		log.RequireLines(t, 1, "relist failed")
		kit.RequireMetric(t, r.Metrics, 1, "pleg_abandoned_calls", "ListPods")
		s := r.Status()
		for of, err := range map[string]error{"Relist.Err": s.Relist.Err, "Err": s.Err} {
			if err == nil || !strings.Contains(err.Error(), "list pods: ") || !strings.Contains(err.Error(), "has not returned") {
				t.Errorf("Status.%s = %v, want the list that has not returned", of, err)
			}
		}
		if begun := rt.Counts().Lists - before; s.Relist.Failures < 5 || begun != 1 {
			t.Errorf("%d lists failed, %d were begun; want one after the other to fail, and none to begin beside the first", s.Relist.Failures, begun)
		}
		rt.SetListFault(nil)
		close(release)
		kit.Relist(1)
		if ok, err := r.Healthy(); !ok {
			t.Errorf("unhealthy once the call has returned: %v", err)
		}
		kit.RequireMetric(t, r.Metrics, 0, "pleg_abandoned_calls")
	})
}
