package pipeline_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var errInspect = errors.New("inspection went wrong")

// The tests of this file and of its neighbours are named after the invariants
// of the design: each fails once its rule is broken.

// Both pods restart their container at each relist. One is inspected at once,
// the other slowly, so that what it does meanwhile is told together.
func TestInvariantOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		r.node.on("slow", takes(1400*time.Millisecond))
		subscribers := []<-chan pleg.Event{r.subscribe(t, 0), r.subscribe(t, 0), r.subscribe(t, 0)}
		words := "c0=running /s=running"
		for n := range 6 {
			if n > 0 {
				words = fmt.Sprintf("c%d=running c%d=exited%s", n, n-1, words[len("c0=running"):])
			}
			r.node.set("fast", words)
			r.node.set("slow", words)
			if n == 0 {
				r.run(t)
			} else {
				r.relist()
			}
		}
		time.Sleep(10 * time.Second)
		for _, events := range subscribers {
			requireTold(t, events,
				"fast", "Started(c0) Started(/s) Died(c0) Started(c1) Died(c1) Started(c2) "+
					"Died(c2) Started(c3) Died(c3) Started(c4) Died(c4) Started(c5)",
				"slow", "Started(c0) Started(/s) Died(c0) Started(c1) Died(c1) Started(c2) "+
					"Died(c2) Started(c4) Died(c3) Died(c4) Started(c5)")
		}
	})
}

func TestInvariantCacheFirst(t *testing.T) {
	const pods, steps = 200, 6
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		events := r.subscribe(t, pods*4*steps)
		checked := make(chan int)
		go func() {
			n := 0
			for ev := range events {
				status, err := r.Cache().Get(ev.PodUID)
				switch {
				case err != nil:
					t.Errorf("cache of pod %s at %s: %v", ev.PodUID, ev.Type, err)
				case ev.Type == pleg.ContainerRemoved:
					if status.Name != "" {
						t.Errorf("cache of pod %s, which is gone, has %+v", ev.PodUID, status)
					}
				case status.ObservedAt.Before(ev.ObservedAt) && status.Name != "":
					t.Errorf("cache of pod %s is from %v, older than its event of %v", ev.PodUID, status.ObservedAt, ev.ObservedAt)
				case ev.Type == pleg.ContainerStarted && status.Container(ev.ContainerID) == nil:
					t.Errorf("cache of pod %s does not have container %s, which has started", ev.PodUID, ev.ContainerID)
				}
				n++
			}
			checked <- n
		}()
		r.run(t)
		for range steps / 2 {
			for n := range pods {
				r.node.set(pleg.PodUID(fmt.Sprint(n)), "c=running")
			}
			r.relist()
			for n := range pods {
				r.node.remove(pleg.PodUID(fmt.Sprint(n)))
			}
			r.relist()
		}
		_ = r.stop()
		if got, want := <-checked, pods*3*steps/2; got != want {
			t.Errorf("events = %d, want %d", got, want)
		}
	})
}

func TestInvariantRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{})
		events := r.subscribe(t, 0)
		r.node.set("a", "c=running /s=running")
		r.run(t)
		requireTold(t, events, "a", "Started(c) Started(/s)")
		r.node.on("a", failing(errInspect))
		r.node.set("a", "c=exited /s=running")
		for range 3 {
			asked := time.Now()
			r.relist()
			requireTold(t, events)
			if status, err := r.Cache().Get("a"); status != nil || !errors.Is(err, errInspect) {
				t.Errorf("cache = %+v, %v, want the error of the inspection", status, err)
			}
			if _, err := r.Cache().GetNewerThan(t.Context(), "a", asked); !errors.Is(err, errInspect) {
				t.Errorf("GetNewerThan = %v, want the error of the inspection", err)
			}
		}
		r.node.set("a", "d=running c=exited /s=running")
		r.relist()
		requireTold(t, events)
		r.node.on("a", nil)
		r.relist()
		requireTold(t, events, "a", "Died(c) Started(d)")
		for range 5 {
			r.relist()
		}
		requireTold(t, events)
		// The first, one failure at each of four relists, and the success.
		if inspected, _ := r.node.calls("a"); inspected != 6 {
			t.Errorf("inspections = %d, want 6: one at each relist until it succeeds", inspected)
		}
	})
}

func TestInvariantNoHeadOfLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{Inspectors: 2})
		events := r.subscribe(t, 0)
		r.node.set("still", "c=running")
		r.run(t)
		requireTold(t, events, "still", "Started(c)")
		r.node.on("hung", hung)
		r.node.set("hung", "c=running")
		want := []string{}
		for n := range 20 {
			uid := fmt.Sprint("other-", n)
			r.node.set(pleg.PodUID(uid), "c=running")
			want = append(want, uid, "Started(c)")
		}
		asked := time.Now()
		r.relist()
		requireTold(t, events, want...)
		for _, uid := range []pleg.PodUID{"still", "other-0", "other-19", "nobody"} {
			if !fresh(t.Context(), r.Pipeline, uid, asked) {
				t.Errorf("no status of pod %s that is newer than before the relist", uid)
			}
		}
		if fresh(t.Context(), r.Pipeline, "hung", asked) {
			t.Error("the pod that hangs counts as inspected")
		}
		for n := range 10 {
			r.node.remove(pleg.PodUID(fmt.Sprint("other-", n)))
			r.relist()
			requireTold(t, events, fmt.Sprint("other-", n), "Died(c) Removed(c)")
		}
		if _, listed := r.node.calls("hung"); listed != 12 {
			t.Errorf("lists = %d, want 12: one a second beside the pod that hangs", listed)
		}
		if ok, err := r.Healthy(); !ok {
			t.Errorf("Healthy = %v, though every list was answered", err)
		}
	})
}

func TestInvariantBounds(t *testing.T) {
	const pods, inspectors = 50, 4
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipeline.Options{Inspectors: inspectors, FixedWidth: true})
		r.run(t)
		for n := range pods {
			uid := pleg.PodUID(fmt.Sprint(n))
			r.node.on(uid, takes(300*time.Millisecond))
			r.node.set(uid, "c=running")
		}
		r.node.on("1", takes(6*time.Second)) // and it changes all the while
		for n := range 8 {
			r.RequestReinspect("0")
			r.node.set("1", fmt.Sprintf("c%d=running", n))
			r.relist()
		}
		if r.node.peak != inspectors {
			t.Errorf("most inspections in flight = %d, want %d", r.node.peak, inspectors)
		}
		if r.node.peakOfPod != 1 {
			t.Errorf("most inspections of one pod in flight = %d, want 1", r.node.peakOfPod)
		}
		if r.node.unbounded != 0 {
			t.Errorf("calls of the runtime without a deadline = %d, want 0", r.node.unbounded)
		}
	})
}
