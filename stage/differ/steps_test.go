package differ_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// A container that lives and dies while an inspection of its pod is under way is
// told of all the same, step by step.
func TestEveryStepOfAShortLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.list(plegtest.Pod("a", "/s=running"))
		f.take(t, "a", "Started(/s)")
		f.hear(1, full(hint("a", "c=created", "c=created /s=running")))
		f.hear(2, full(hint("a", "c=running", "c=running /s=running")))
		f.hear(3, full(hint("a", "c=exited", "c=exited /s=running")))
		f.hear(4, full(hint("a", "c=removed", "/s=running")))
		f.requireQuiet(t)
		if len(f.cache.touched) > 0 {
			t.Errorf("touched %v while the inspection was under way", f.cache.touched)
		}
		for n, words := range []string{"Changed(c)", "Started(c)", "Died(c)", "Removed(c)"} {
			f.settle("a", nil)
			if c, want := f.take(t, "a", words), at(1).Add(time.Duration(n+1)*time.Second/10); !c.At.Equal(want) {
				t.Errorf("%s at %v, want the time of its event %v", words, c.At, want)
			}
		}
		f.settle("a", nil)
		f.requireQuiet(t)
	})
}

// A listing tells only how things are: no step of events may wait behind it, and
// it may not hide one.
func TestListingAfterSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.list(plegtest.Pod("a", "/s=running"))
		f.take(t, "a", "Started(/s)")
		f.hear(1, full(hint("a", "c=running", "c=running /s=running")))
		f.list(plegtest.Pod("a", "d=running /s=running"))
		f.list(plegtest.Pod("a", "d=exited /s=running"))
		f.settle("a", nil)
		f.take(t, "a", "Started(c)")
		f.settle("a", nil)
		f.take(t, "a", "Died(c) Removed(c) Died(d)")
	})
}

func TestFailureDropsTheStepsAndKeepsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.list(plegtest.Pod("a", "/s=running"))
		f.take(t, "a", "Started(/s)")
		f.hear(1, full(hint("a", "c=running", "c=running /s=running")))
		f.hear(2, full(hint("a", "c=exited", "c=exited /s=running")))
		f.settle("a", errInspect)
		f.requireQuiet(t)
		f.list(plegtest.Pod("a", "c=exited /s=running"))
		f.take(t, "a", "Died(c) Started(/s)")
	})
}

// However many events come meanwhile, a bounded number waits and the last one
// counts.
func TestStepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.list(plegtest.Pod("a", "/s=running"))
		f.take(t, "a", "Started(/s)")
		const lives = 100
		words := "/s=running"
		for n := range lives {
			words = fmt.Sprintf("c%d=running %s", n, words)
			f.hear(n+1, hint("a", fmt.Sprintf("c%d=running", n), words))
		}
		changes, started := 0, 0
		for {
			f.settle("a", nil)
			c, ok := f.poll()
			if !ok {
				break
			}
			changes++
			started += len(c.Events)
		}
		if changes > 20 || started != lives {
			t.Errorf("%d changes tell of %d containers, want at most 20 and all %d", changes, started, lives)
		}
	})
}

func TestPodThatAnEventRemovesIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, plegtest.Pod("a", "/s=exited"))
		f.hear(5, hint("a", "/s=removed", ""))
		f.takeKnown(t, "a", "Removed(/s)")
		f.settle("a", nil)
		// A listing that began before still has the pod, and one that began a
		// moment after has its sandbox.
		f.listings <- stage.Listing{At: at(1).Add(time.Second / 10), Pods: []*pleg.Pod{plegtest.Pod("a", "t=running")}}
		f.list(plegtest.Pod("a", "/s=exited"))
		f.requireQuiet(t)
		f.list(plegtest.Pod("a", "/t=running"))
		f.take(t, "a", "Started(/t)")
	})
}

// A runtime may list what it has removed for some milliseconds, not for ever.
func TestRemovedContainerIsHeldToBeGoneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pod := plegtest.Pod("a", "c=exited d=running")
		f.settledList(t, pod)
		f.hear(1, hint("a", "c=removed", "d=running"))
		f.take(t, "a", "Removed(c)")
		f.settle("a", nil)
		for range 5 {
			f.list(pod)
			f.requireQuiet(t)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Millisecond)
		f.list(pod)
		f.take(t, "a", "Died(c)")
	})
}

// An event too old to be used still says that its container is gone for good.
func TestLateRemovalCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, plegtest.Pod("a", "c=exited d=running"))
		f.hear(-1, hint("a", "c=removed", "d=running"))
		f.requireQuiet(t)
		f.list(plegtest.Pod("a", "c=exited d=running"))
		f.take(t, "a", "Removed(c)")
	})
}

func TestRelistOfOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		now := at(1).Add(time.Second / 10)
		f.observe(stage.Observation{UID: "a", At: now, Pod: plegtest.Pod("a", "c=exited")})
		f.take(t, "a", "Died(c)")
		f.observe(stage.Observation{UID: "b", At: now})
		f.takeKnown(t, "b", "Died(d) Removed(d)")
		f.observe(stage.Observation{UID: "x", At: now})
		f.requireQuiet(t)
		if got := f.cache.touched["x"]; !got.Equal(now) || len(f.cache.touched) != 1 {
			t.Errorf("touched %v, want only the pod that nobody knew, at %v", f.cache.touched, now)
		}
	})
}

// Between two listings, what is remembered of pods that are gone is bounded.
func TestFloodOfGonePodsAsksForAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t)
		flood := func(n int) {
			for i := range n {
				f.observations <- stage.Observation{UID: pleg.PodUID(fmt.Sprint(i)), At: at(f.lists).Add(time.Second / 10)}
			}
			synctest.Wait()
		}
		flood(4000)
		if got := f.lister.relists.Load(); got != 0 {
			t.Errorf("listings asked for = %d, want none yet", got)
		}
		f.settledList(t)
		flood(4000) // the listing has cleared what was there
		if got := f.lister.relists.Load(); got != 0 {
			t.Errorf("listings asked for after a listing = %d, want none yet", got)
		}
		flood(5000)
		if got := f.lister.relists.Load(); got == 0 {
			t.Error("no listing asked for")
		}
	})
}

func TestRequestedReinspectionAsksForAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.settledList(t, plegtest.Pod("a", "c=running"))
		f.request("a")
		if got := f.lister.relists.Load(); got != 1 {
			t.Errorf("listings asked for = %d, want 1", got)
		}
	})
}
