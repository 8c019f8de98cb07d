package invariants_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/podcache"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// store is a second cache in the embedder's place. Without a context, each of its methods panics.
type store struct{ *podcache.Cache }

func (s store) Observe(at time.Time, pending []pleg.PodUID) {
	var pods []*pleg.Pod
	for _, uid := range pending {
		pods = append(pods, &pleg.Pod{UID: uid})
	}
	s.Cache.Observe(at, pods)
}

// The embedder's store gets each write of the cache, before the event of that change.
func TestStoreIsWrittenBesideTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := podcache.New()
		r := kit.New(t, pipeline.Options{Store: store{own}})
		stream := promises.Stream{Cache: own}
		subscriber := r.Follow(t, pleg.SubscribeOptions{}, stream.Add)
		slow := plegtest.Delay(1200 * time.Millisecond) // over a list that shows the pod unchanged
		r.Start(t)
		for n, step := range []struct {
			words string
			fault plegtest.Fault
		}{{"", nil}, {"c=running", nil}, {"c=exited", plegtest.Fail(errInspect)}, {"c=exited", slow}, {"c=exited", slow}, {"c=exited", nil}, {"", nil}} {
			time.Sleep(pipeline.DefaultRelistPeriod / 2)
			got, gotErr := own.Get("a")
			want, wantErr := r.Cache().Get("a")
			recently := time.Now().Add(-600 * time.Millisecond)
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || promises.Fresh(own, "a", recently) != promises.Fresh(r.Cache(), "a", recently) {
				t.Errorf("before step %d: the store has %+v, %v, want what the cache has, and as new: %+v, %v", n, got, gotErr, want, wantErr)
			}
			r.Runtime.SetPodFault("a", step.fault)
			r.Runtime.Set("a", step.words)
			time.Sleep(pipeline.DefaultRelistPeriod / 2)
			synctest.Wait()
		}
		_ = r.Stop() // kit.Run reports the error
		<-subscriber.Done
		if got := plegtest.Words(stream.Events...); got != "Started(c) Died(c) Removed(c)" {
			t.Errorf("events: %s", got)
		}
		if err := stream.Check(); err != nil {
			t.Error(err)
		}
	})
}

func TestStoreThatPanicsStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		r := kit.New(t, pipeline.Options{Store: store{}, Logger: log.Logger()})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		kit.Relist(2)
		r.Runtime.Remove("a")
		kit.Relist(2)
		kit.RequireEvents(t, events, "a", "Started(c) Died(c) Removed(c)")
		for _, method := range []string{"Set", "Delete"} {
			log.RequireLines(t, 1, `level=ERROR msg="Options.Store has failed" method=Store.`+method+` podUID=a err="panic: `)
		}
	})
}

// blockingStore blocks in one method until released.
type blockingStore struct {
	store
	set, observe <-chan struct{}
	calls        *atomic.Int64 // of that method
}

// A call that fails after the pipeline has waited for it is logged as failed, too.
func TestStoreThatPanicsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log kit.Log
		release := make(chan struct{})
		r := kit.New(t, pipeline.Options{Store: blockingStore{set: release, calls: new(atomic.Int64)}, Logger: log.Logger()})
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		time.Sleep(time.Minute)
		const line = `level=ERROR msg="Options.Store has failed" method=Store.Set podUID=a err="panic: `
		log.RequireLines(t, 0, line)
		close(release)
		synctest.Wait()
		log.RequireLines(t, 1, line)
	})
}

func (s blockingStore) Set(uid pleg.PodUID, status *pleg.PodStatus, err error, at time.Time) {
	if s.set != nil {
		s.calls.Add(1)
		<-s.set
	}
	s.store.Set(uid, status, err, at)
}

func (s blockingStore) Observe(at time.Time, pending []pleg.PodUID) {
	if s.observe != nil {
		s.calls.Add(1)
		<-s.observe
	}
	s.store.Observe(at, pending)
}

// A store that blocks is named once it has taken a second, and in the error of Run. It delays the return of
// Run only for a moment, and is not called again.
func TestStoreThatBlocksIsNamed(t *testing.T) {
	for _, method := range []string{"Store.Set", "Store.Observe"} {
		kit.Bubble(t, method, func(t *testing.T) {
			release := make(chan struct{})
			defer close(release)
			blocks := blockingStore{store: store{podcache.New()}, set: release, calls: new(atomic.Int64)}
			if method == "Store.Observe" {
				blocks.set, blocks.observe = nil, release
			}
			var log kit.Log
			r := kit.New(t, pipeline.Options{Store: blocks, Logger: log.Logger()})
			kit.Fill(r.Runtime, 2, "c=running")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			for _, after := range []time.Duration{time.Second, time.Minute} {
				time.Sleep(after)
				synctest.Wait()
				of := " podUID=p" // one of the two
				if method == "Store.Observe" {
					of = ` podUID=""`
				}
				log.RequireLines(t, 1, `level=WARN msg="Options.Store does not return, the pipeline waits" method=`+method+of)
				log.RequireLines(t, 1, "Options.Store")
			}
			cancelled := time.Now()
			cancel()
			if err, want := <-ended, "Options.Store has not returned from "+method; err == nil || err.Error() != want {
				t.Errorf("Run = %v, want %s", err, want)
			}
			if took := time.Since(cancelled); took > 2*time.Second {
				t.Errorf("Run returned after %v, want a second", took)
			}
			synctest.Wait()
			if n := blocks.calls.Load(); n != 1 {
				t.Errorf("%s was called %d times, want once", method, n)
			}
		})
	}
}

// A call that begins after the end of the context has the rest of that second.
func TestStoreThatBlocksAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		r := kit.New(t, pipeline.Options{Store: blockingStore{store: store{podcache.New()}, set: release, calls: new(atomic.Int64)}})
		r.Runtime.Set("a", "c=running")
		r.Runtime.SetInspectFault(func(ctx context.Context) error { <-ctx.Done(); time.Sleep(600 * time.Millisecond); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Second)
		cancelled := time.Now()
		cancel()
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "Store.Set") {
			t.Errorf("Run = %v, want an error that names Store.Set", err)
		}
		if took := time.Since(cancelled); took != time.Second {
			t.Errorf("Run returned after %v, want a second", took)
		}
	})
}

// A store that is slow for a moment causes no error, whether Run ends after that or during it.
func TestStoreThatIsSlowIsWaitedFor(t *testing.T) {
	const slow = 10 * time.Second
	for _, stop := range []time.Duration{slow + time.Second, slow - 900*time.Millisecond} {
		kit.Bubble(t, stop.String(), func(t *testing.T) {
			own, release := podcache.New(), make(chan struct{})
			r := kit.New(t, pipeline.Options{Store: blockingStore{store: store{own}, set: release, calls: new(atomic.Int64)}})
			r.Runtime.Set("a", "c=running")
			r.Start(t)
			time.AfterFunc(slow, func() { close(release) })
			time.Sleep(stop)
			if err := r.Stop(); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v", err)
			}
			if _, err := own.Get("a"); err != nil {
				t.Errorf("the store has %v, want the status", err)
			}
		})
	}
}

// A stage that ends Run, as the runtime has no events, ends the other stages too, whatever they wait for: the context
// of Run may never end.
func TestRunThatEndsByItself(t *testing.T) {
	hang := func(r *kit.Pipeline) { r.Runtime.SetListFault(plegtest.Hang) }
	for name, row := range map[string]struct {
		before func(*kit.Pipeline) // Run
		later  func(*kit.Pipeline)
		says   string // in the error
	}{
		"it lists all pods": {hang, nil, ""},
		"it lists one":      {nil, func(r *kit.Pipeline) { hang(r); r.RequestRelist("a") }, ""},
		"it inspects one":   {func(r *kit.Pipeline) { r.Runtime.SetInspectFault(plegtest.Hang) }, nil, ""},
		"it waits for the store": {nil, func(r *kit.Pipeline) {
			r.Runtime.Set("a", "c=exited")
			r.RequestRelist("a")
		}, "Options.Store has not returned from Store.Set"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			runtime, release := plegtest.New(), make(chan struct{}, 1)
			defer close(release)
			release <- struct{}{} // the first call returns
			runtime.Set("a", "c=running")
			runtime.SetWatchFault(func(context.Context) error {
				time.Sleep(time.Second)
				return pleg.ErrNoEvents
			})
			own := blockingStore{store: store{podcache.New()}, set: release, calls: new(atomic.Int64)}
			r := kit.New(t, pipeline.Options{Runtime: runtime, Events: pipeline.EventsRequire, RelistPeriod: time.Hour, Store: own})
			r.Runtime = runtime
			if row.before != nil {
				row.before(r)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			time.Sleep(time.Second / 2)
			if row.later != nil {
				row.later(r)
			}
			time.Sleep(2 * time.Second)
			select {
			case err := <-ended:
				if !errors.Is(err, pleg.ErrNoEvents) || !strings.Contains(err.Error(), row.says) {
					t.Errorf("Run = %v, want %v and %q", err, pleg.ErrNoEvents, row.says)
				}
			default:
				cancel()
				t.Errorf("Run has returned only with its context: %v", <-ended)
			}
		})
	}
}

// A call of the runtime that ignores its context is named. It delays the return of Run only for a
// moment.
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
		s := r.Look()
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
	})
}
