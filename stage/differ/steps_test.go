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
		b := newBed(t)
		b.list(plegtest.Pod("a", "/s=running"))
		b.take(t, "a", "Started(/s)")
		b.hear(1, full(hint("a", "c=created", "c=created /s=running")))
		b.hear(2, full(hint("a", "c=running", "c=running /s=running")))
		b.hear(3, full(hint("a", "c=exited", "c=exited /s=running")))
		b.hear(4, full(hint("a", "c=removed", "/s=running")))
		b.requireQuiet(t)
		if len(b.cache.touched) > 0 {
			t.Errorf("touched %v while the inspection was under way", b.cache.touched)
		}
		for n, words := range []string{"Changed(c)", "Started(c)", "Died(c)", "Removed(c)"} {
			b.settle("a", nil)
			if c, want := b.take(t, "a", words), at(1).Add(time.Duration(n+1)*time.Second/10); !c.At.Equal(want) {
				t.Errorf("%s at %v, want the time of its event %v", words, c.At, want)
			}
		}
		b.settle("a", nil)
		b.requireQuiet(t)
	})
}

// A listing tells only how things are: no step of events may wait behind it, and
// it may not hide one.
func TestListingAfterSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "/s=running"))
		b.take(t, "a", "Started(/s)")
		b.hear(1, full(hint("a", "c=running", "c=running /s=running")))
		b.list(plegtest.Pod("a", "d=running /s=running"))
		b.list(plegtest.Pod("a", "d=exited /s=running"))
		b.settle("a", nil)
		b.take(t, "a", "Started(c)")
		b.settle("a", nil)
		b.take(t, "a", "Died(c) Removed(c) Died(d)")
	})
}

func TestFailureDropsTheStepsAndKeepsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "/s=running"))
		b.take(t, "a", "Started(/s)")
		b.hear(1, full(hint("a", "c=running", "c=running /s=running")))
		b.hear(2, full(hint("a", "c=exited", "c=exited /s=running")))
		b.settle("a", errInspect)
		b.requireQuiet(t)
		b.list(plegtest.Pod("a", "c=exited /s=running"))
		b.take(t, "a", "Died(c) Started(/s)")
	})
}

// However many events come meanwhile, a bounded number waits and the last one
// counts.
func TestStepsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.list(plegtest.Pod("a", "/s=running"))
		b.take(t, "a", "Started(/s)")
		const lives = 100
		words := "/s=running"
		for n := range lives {
			words = fmt.Sprintf("c%d=running %s", n, words)
			b.hear(n+1, hint("a", fmt.Sprintf("c%d=running", n), words))
		}
		changes, started := 0, 0
		for {
			b.settle("a", nil)
			c, ok := b.poll()
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
		b := newBed(t)
		b.settledList(t, plegtest.Pod("a", "/s=exited"))
		b.hear(5, hint("a", "/s=removed", ""))
		b.takeKnown(t, "a", "Removed(/s)")
		b.settle("a", nil)
		// A listing that began before still has the pod, and one that began a
		// moment after has its sandbox.
		b.listings <- stage.Listing{At: at(1).Add(time.Second / 10), Pods: []*pleg.Pod{plegtest.Pod("a", "t=running")}}
		b.list(plegtest.Pod("a", "/s=exited"))
		b.requireQuiet(t)
		b.list(plegtest.Pod("a", "/t=running"))
		b.take(t, "a", "Started(/t)")
	})
}

// A runtime may list what it has removed for some milliseconds, not for ever.
func TestRemovedContainerIsHeldToBeGoneForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		pod := plegtest.Pod("a", "c=exited d=running")
		b.settledList(t, pod)
		b.hear(1, hint("a", "c=removed", "d=running"))
		b.take(t, "a", "Removed(c)")
		b.settle("a", nil)
		for range 5 {
			b.list(pod)
			b.requireQuiet(t)
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Millisecond)
		b.list(pod)
		b.take(t, "a", "Died(c)")
	})
}

// An event too old to be used still says that its container is gone for good.
func TestLateRemovalCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, plegtest.Pod("a", "c=exited d=running"))
		b.hear(-1, hint("a", "c=removed", "d=running"))
		b.requireQuiet(t)
		b.list(plegtest.Pod("a", "c=exited d=running"))
		b.take(t, "a", "Removed(c)")
	})
}

func TestRelistOfOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		now := at(1).Add(time.Second / 10)
		b.observe(stage.Observation{UID: "a", At: now, Pod: plegtest.Pod("a", "c=exited")})
		b.take(t, "a", "Died(c)")
		b.observe(stage.Observation{UID: "b", At: now})
		b.takeKnown(t, "b", "Died(d) Removed(d)")
		b.observe(stage.Observation{UID: "x", At: now})
		b.requireQuiet(t)
		if got := b.cache.touched["x"]; !got.Equal(now) || len(b.cache.touched) != 1 {
			t.Errorf("touched %v, want only the pod that nobody knew, at %v", b.cache.touched, now)
		}
	})
}

// Between two listings, what is remembered of pods that are gone is bounded.
func TestFloodOfGonePodsAsksForAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t)
		flood := func(n int) {
			for i := range n {
				b.observations <- stage.Observation{UID: pleg.PodUID(fmt.Sprint(i)), At: at(b.lists).Add(time.Second / 10)}
			}
			synctest.Wait()
		}
		flood(4000)
		if got := b.retries.Load(); got != 0 {
			t.Errorf("listings asked for = %d, want none yet", got)
		}
		b.settledList(t)
		flood(4000) // the listing has cleared what was there
		if got := b.retries.Load(); got != 0 {
			t.Errorf("listings asked for after a listing = %d, want none yet", got)
		}
		flood(5000)
		if got := b.retries.Load(); got == 0 {
			t.Error("no listing asked for")
		}
	})
}

func TestRequestedReinspectionAsksForAListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.settledList(t, plegtest.Pod("a", "c=running"))
		b.request("a")
		if got := b.retries.Load(); got != 1 {
			t.Errorf("listings asked for = %d, want 1", got)
		}
	})
}
