package differ_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

// passTime waits and returns how often pods were listed alone, and all pods.
func (f *fixture) passTime(d time.Duration) (alone, all int) {
	f.lister.takeRelisted()
	f.lister.relistsNow.Store(0)
	time.Sleep(d)
	synctest.Wait()
	return len(f.lister.takeRelisted()), int(f.lister.relistsNow.Load())
}

func TestDeadPodIsListedAlone(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listWithStream(plegtest.Pod("a", "c=exited /s=running"), plegtest.Pod("b", "c=running /t=running"))
		f.settleAll(nil)
		if alone, all := f.passTime(time.Minute); alone+all > 0 {
			t.Errorf("%d and %d lists while all sandboxes are ready", alone, all)
		}
		f.sendHint(1, withStatus(hint("a", "/s=exited", "c=exited /s=exited")))
		f.settleAll(nil)
		for _, tc := range []struct {
			pause time.Duration
			want  int
		}{{1499 * time.Millisecond, 0}, {time.Millisecond, 1}, {2999 * time.Millisecond, 0}, {time.Millisecond, 1}, {time.Hour, 9}, {time.Hour, 1}} {
			if alone, all := f.passTime(tc.pause); alone != tc.want || all != 0 {
				t.Errorf("%d lists of the pod and %d of all within %v, want %d and none", alone, all, tc.pause, tc.want)
			}
		}
		f.sendHint(2, hint("a", "c=removed", "/s=exited")) // the next removal is near
		f.settleAll(nil)
		if alone, _ := f.passTime(1500 * time.Millisecond); alone != 1 {
			t.Errorf("%d lists after a change, want 1", alone)
		}
		f.sendObservation(goneAt(f, "a", 3))
		f.settleAll(nil)
		if alone, all := f.passTime(time.Hour); alone+all != 0 {
			t.Errorf("%d and %d lists of a pod that is gone", alone, all)
		}
	})
}

func TestPodWithANewSandboxIsNotListedAlone(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listWithStream(plegtest.Pod("a", "/s=exited"))
		f.settleAll(nil)
		f.sendHint(1, hint("a", "/t=running", "/t=running"))
		f.settleAll(nil)
		if alone, all := f.passTime(time.Hour); alone+all != 0 {
			t.Errorf("%d and %d lists of a pod that runs", alone, all)
		}
	})
}

// One list of all pods costs less than many of single pods.
func TestManyDeadPodsAreListedTogether(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		var pods []*pleg.Pod
		for n := range 100 {
			pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint("p", n)), fmt.Sprintf("/s%d=exited", n)))
		}
		f.listWithStream(pods...)
		f.settleAll(nil)
		if alone, all := f.passTime(6 * time.Second); alone != 0 || all != 2 {
			t.Errorf("%d lists of a pod and %d of all within 6 s, want none and 2", alone, all)
		}
		if alone, all := f.passTime(time.Hour); alone != 0 || all > 200 {
			t.Errorf("%d lists of a pod and %d of all within an hour", alone, all)
		}
	})
}

func TestDeadPodsAreNotListedAloneWithoutAStream(t *testing.T) {
	for name, list := range map[string]func(*fixture, ...*pleg.Pod){"no stream": (*fixture).list, "stream ended": (*fixture).listAfterStreamEnded} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listWithStream(plegtest.Pod("a", "/s=exited"))
			f.settleAll(nil)
			list(f, plegtest.Pod("a", "/s=exited"))
			if alone, all := f.passTime(time.Minute); alone+all != 0 {
				t.Errorf("%d and %d lists", alone, all)
			}
		})
	}
}

// While all pods are listed each period, dead pods cost nothing.
func TestListingsServeDeadPods(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		pod := plegtest.Pod("a", "/s=exited")
		f.listWithStream(pod)
		f.settleAll(nil)
		for range 10 {
			if alone, all := f.passTime(period); alone+all != 0 {
				t.Errorf("%d and %d lists", alone, all)
			}
			f.listWithStream(pod)
		}
	})
}
