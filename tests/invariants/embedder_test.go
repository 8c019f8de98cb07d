package invariants_test

import (
	"fmt"
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

// The embedder's store gets what the cache gets, before the event that it is about.
func TestStoreIsWrittenBesideTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := podcache.New()
		r := kit.New(t, pipeline.Options{Store: store{own}})
		stream := promises.Stream{Cache: own}
		subscriber := r.Follow(t, pipeline.SubscribeOptions{}, stream.Add)
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
		r := kit.New(t, pipeline.Options{Store: store{}})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running")
		r.Start(t)
		kit.Relist(2)
		r.Runtime.Remove("a")
		kit.Relist(2)
		kit.RequireEvents(t, events, "a", "Started(c) Died(c) Removed(c)")
	})
}

// A log handler that blocks stops no stage, and does not keep Run from returning.
func TestInvariantBlockedLogStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := kit.New(t, pipeline.Options{Logger: kit.BlockedLogger(release)})
		events, full := p.Events(t, 0), p.Events(t, 1)
		p.Runtime.Set("bad", "c=running")
		p.Runtime.SetPodFault("bad", plegtest.Fail(errInspect))
		p.Runtime.Set("well", "c=running")
		p.StartBetweenLists(t)
		kit.RequireEvents(t, events, "well", "Started(c)")
		p.Runtime.SetListFault(plegtest.Fail(errInspect))
		kit.Relist(2)
		p.Runtime.SetListFault(nil)
		p.Runtime.Set("well", "c=exited d=running")
		kit.Relist(2)
		kit.RequireEvents(t, events, "well", "Died(c) Started(d)")
		if len(full) == 0 {
			t.Error("the subscriber with the full buffer got nothing")
		}
		began := time.Now()
		_ = p.Stop()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Run returned %v after its end, want it within 2 s", took)
		}
	})
}
