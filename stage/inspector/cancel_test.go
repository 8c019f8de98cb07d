package inspector_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/inspector"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// What the differ ends is no answer of the runtime: the cache keeps the status before.
func TestCancelledInspection(t *testing.T) {
	const old = 3 * hungAfter
	cut := stage.Settled{Late: true}
	for name, tc := range map[string]struct {
		cancel    stage.Cancel
		age       time.Duration
		overtaken bool
		want      stage.Settled // without what all have; zero if it goes on
	}{
		"its pod is gone":      {stage.Cancel{Gone: true}, 1, false, stage.Settled{Superseded: true}},
		"on request":           {stage.Cancel{After: old}, old, false, cut},
		"on request, younger":  {stage.Cancel{After: old}, old - 1, false, stage.Settled{}},
		"on request, at once":  {stage.Cancel{}, hungAfter - 1, false, stage.Settled{}},
		"on request, a second": {stage.Cancel{}, hungAfter, false, cut},
		"on request, it hangs": {stage.Cancel{After: old}, hungAfter, true, stage.Settled{Hung: true}},
		"on request, no hang":  {stage.Cancel{After: old}, hungAfter - 1, true, stage.Settled{}},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			f := newFixture(t, nil, inspector.Options{Inspectors: 2, HungAfter: hungAfter})
			f.do(one("a"))
			f.runtime.SetPodFault("a", plegtest.Hang)
			f.inspect <- one("a")
			time.Sleep(tc.age)
			if tc.overtaken {
				f.do(one("quick"))
			}
			for len(f.settled) > 0 { // it hangs
				<-f.settled
			}
			tc.cancel.UID = "a"
			f.stop <- tc.cancel
			synctest.Wait()
			var got stage.Settled
			if len(f.settled) > 0 {
				got = <-f.settled
				if got.UID != "a" || got.Err == nil || got.Took != tc.age {
					t.Errorf("settled %+v, want a cancelled inspection of %v", got, tc.age)
				}
				got.UID, got.Err, got.Took = "", nil, 0
			}
			if got != tc.want {
				t.Errorf("settled %+v, want %+v", got, tc.want)
			}
			if _, err := f.cache.Get("a"); err != nil {
				t.Errorf("the cache has %v, want the status", err)
			}
		})
	}
}

// Each list says again that the pod is gone.
func TestUncancellableCallOfAGonePodIsAbandoned(t *testing.T) {
	testHanging(t, 2, func(t *testing.T, f *fixture) {
		defer close(f.release)
		f.inspect <- one("uncancellable")
		for range 2 {
			f.stop <- stage.Cancel{UID: "uncancellable", Gone: true}
			time.Sleep(hungAfter / 2)
		}
		synctest.Wait()
		if len(f.settled) == 0 {
			t.Fatal("not settled")
		}
		if s := <-f.settled; !s.Superseded || s.Took != hungAfter {
			t.Errorf("settled %+v, want a superseded inspection of %v", s, hungAfter)
		}
	})
}
