package contract_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// untilSynced splits the events at the mark.
func (f *fixture) untilSynced(events []pleg.Event) (before []pleg.Event, mark pleg.Event, after []pleg.Event) {
	f.Helper()
	i := slices.IndexFunc(events, func(ev pleg.Event) bool { return ev.Type == pleg.Synced })
	if i < 0 {
		f.Fatalf("no Synced in %d events", len(events))
	}
	return events[:i], events[i], events[i+1:]
}

// Synced means that the initial state is complete, also for a subscriber that came
// before the first list. What the first list shows is replayed; what happens before
// Synced is not.
func TestContractSyncedMeansComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, pipeline.Options{Inspectors: 2})
		kit.Fill(f.Runtime, livingPods, "c1=running c2=exited /s=running")
		for _, uid := range kit.UIDs(livingPods) {
			f.Runtime.SetPodFault(uid, plegtest.Delay(250*time.Millisecond)) // 2.5 s for all
		}
		last := kit.UIDs(livingPods)[livingPods-1]
		f.Runtime.SetPodFault(last, plegtest.Delay(990*time.Millisecond)) // Synced waits for it
		before := f.subscribe(pipeline.SubscribeOptions{Replay: true})
		restarted := f.subscribe(pipeline.SubscribeOptions{After: pleg.Position{Epoch: "another", Seq: 7}})
		live := f.subscribe(pipeline.SubscribeOptions{})
		f.Start(t)
		time.Sleep(time.Second + 100*time.Millisecond)
		f.Runtime.SetPodFault("p0", nil)
		f.Runtime.Set("p0", "c1=exited c2=exited /s=running")
		late := f.subscribe(pipeline.SubscribeOptions{Replay: true})
		kit.Relist(5)
		f.Runtime.Set("p1", "c1=exited c2=exited /s=running")
		kit.Relist(2)
		for name, v := range map[string]subscriber{"before the first list": before, "of another epoch": restarted, "during the first inspections": late} {
			replay, _, after := f.untilSynced(v.Events())
			if len(replay) > 0 && replay[0].Type == pleg.Gap {
				replay = replay[1:]
			}
			initial, died := 0, 0
			for _, ev := range replay {
				if ev.Replayed {
					initial++
				} else if ev.Type == pleg.ContainerDied && ev.PodUID == "p0" {
					died++
				} else {
					t.Errorf("%s: %+v before Synced, want it replayed", name, ev)
				}
			}
			if initial != 3*livingPods || died != 1 {
				t.Errorf("%s: %d events replayed and %d of a container that ended, want %d and 1", name, initial, died, 3*livingPods)
			}
			if got := plegtest.Words(after...); got != "Died(c1)" {
				t.Errorf("%s: after Synced %s, want Died(c1)", name, got)
			}
		}
		replayed := 0
		for _, ev := range live.Events() {
			if ev.Replayed {
				replayed++
			}
			if ev.Type == pleg.Synced {
				t.Error("a subscriber without Replay got a Synced")
			}
		}
		if replayed != 3*livingPods {
			t.Errorf("a subscriber without Replay got %d events of the first state, want %d", replayed, 3*livingPods)
		}
	})
}

// A pod whose inspection hangs stops nobody's bookmarks. In bookmarks for subscribers that want the
// pod, the time stands still and the position moves on.
func TestContractBookmarksDespiteAHungPod(t *testing.T) {
	eachWay(t, pipeline.Options{}, func(f *fixture) {
		f.Runtime.Set("web/hung", "c=running /s=running")
		f.Runtime.Set("shop/well", "c=running /s=running")
		kit.Relist(2)
		recovered := make(chan struct{})
		f.Runtime.SetPodFault("web/hung", plegtest.Block(recovered))
		f.Runtime.Set("web/hung", "c=exited /s=running")
		hungAt := time.Now()
		of := func(f *fixture, namespaces ...string) subscriber {
			return f.subscribe(pipeline.SubscribeOptions{Bookmarks: true, Filter: pleg.Filter{Namespaces: namespaces}})
		}
		concerned := map[string]subscriber{"all": of(f), "its namespace": of(f, "web")}
		other := of(f, "shop")
		lastBookmark := func(name string, v subscriber) pleg.Event {
			events := v.Events()
			if len(events) == 0 || events[len(events)-1].Type != pleg.Bookmark {
				f.Fatalf("%s: %s, want a bookmark at the end", name, plegtest.Words(events...))
			}
			return events[len(events)-1]
		}
		kit.Relist(3)
		f.Runtime.Set("shop/well", "c=exited /s=running")
		kit.Relist(2)
		for name, v := range concerned {
			if mark := lastBookmark(name, v); mark.Seq != 7 || mark.ObservedAt.After(hungAt) {
				f.Errorf("%s: bookmark %d of %v, want 7 and a time before %v, when the pod began to hang", name, mark.Seq, mark.ObservedAt, hungAt)
			}
		}
		if mark := lastBookmark("another namespace", other); mark.Seq != 7 || time.Since(mark.ObservedAt) > 2*time.Second {
			f.Errorf("another namespace: bookmark %d of %v, want 7 and a recent time", mark.Seq, mark.ObservedAt)
		}
		close(recovered)
		kit.Relist(2)
		for name, v := range concerned {
			if mark := lastBookmark(name, v); mark.Seq != 8 || time.Since(mark.ObservedAt) > 2*time.Second {
				f.Errorf("%s, after the recovery: bookmark %d of %v, want 8 and a recent time", name, mark.Seq, mark.ObservedAt)
			}
		}
	})
}
