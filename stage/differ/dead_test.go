package differ_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// passTime waits and returns how often pods were listed alone, and all pods.
func (f *fixture) passTime(d time.Duration) (alone, all int) {
	f.lister.takeRelisted()
	f.lister.relistsNow.Store(0)
	time.Sleep(d)
	synctest.Wait()
	return len(f.lister.takeRelisted()), int(f.lister.relistsNow.Load())
}

// pass waits. It requires want lists of the pod alone meanwhile, and none of all pods.
func pass(d time.Duration, want int) step {
	return func(t *testing.T, f *fixture) {
		if alone, all := f.passTime(d); alone != want || all != 0 {
			t.Errorf("%d lists of the pod and %d of all within %v, want %d and none", alone, all, d, want)
		}
	}
}

const deadPod = "/s=exited"

func TestDeadPodIsListedAlone(t *testing.T) {
	testDiffer(t, all(
		func(_ *testing.T, f *fixture) {
			pods := []*pleg.Pod{plegtest.Pod("a", "c=exited /s=running"), plegtest.Pod("b", "c=running /t=running")}
			f.sendListing(stage.Listing{Pods: pods, StreamUp: true})
		},
		settle(nil), pass(time.Minute, 0), // all sandboxes are ready
		whole(1, deadPod, "c=exited /s=exited"), settle(nil),
		pass(1499*time.Millisecond, 0), pass(time.Millisecond, 1), pass(2999*time.Millisecond, 0), pass(time.Millisecond, 1),
		pass(time.Hour, 9), pass(time.Hour, 1),
		event(2, "c=removed", deadPod), settle(nil), pass(1500*time.Millisecond, 1), // the next removal is near
		alone(3, gone), settle(nil), pass(time.Hour, 0),
	))
}

// One list of all pods costs less than many of single pods.
func TestManyDeadPodsAreListedTogether(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		var pods []*pleg.Pod
		for n := range 100 {
			pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint("p", n)), fmt.Sprintf("/s%d=exited", n)))
		}
		f.sendListing(stage.Listing{Pods: pods, StreamUp: true})
		f.settleAll(nil)
		if alone, all := f.passTime(6 * time.Second); alone != 0 || all != 2 {
			t.Errorf("%d lists of a pod and %d of all within 6 s, want none and 2", alone, all)
		}
		if alone, all := f.passTime(time.Hour); alone != 0 || all > 200 {
			t.Errorf("%d lists of a pod and %d of all within an hour", alone, all)
		}
	})
}

func TestPodsThatAreNotListedAlone(t *testing.T) {
	testSteps(t, map[string][]step{
		"a new sandbox": {stream(deadPod), settle(nil), event(1, "/t=running", "/t=running"), settle(nil), pass(time.Hour, 0)},
		"no stream":     {stream(deadPod), settle(nil), list(deadPod), pass(time.Minute, 0)},
		"stream ended":  {stream(deadPod), settle(nil), broke(deadPod), pass(time.Minute, 0)},
		// While all pods are listed each period, dead pods cost nothing.
		"listings": {stream(deadPod), settle(nil), all(slices.Repeat([]step{pass(period, 0), stream(deadPod)}, 10)...)},
	})
}
