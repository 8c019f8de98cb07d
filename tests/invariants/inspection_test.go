// Package invariants_test has a test for each invariant of the pipeline: it fails if
// the rule is broken.
package invariants_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

var errInspect = errors.New("inspection failed")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// While inspections fail, no event is sent, the cache has the error, and the pod is
// inspected once at each relist.
func TestInvariantRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{})
		events := r.Events(t, 0)
		r.Runtime.Set("a", "c=running /s=running")
		r.Start(t)
		synctest.Wait()
		kit.RequireEvents(t, events, "a", "Started(c) Started(/s)")
		r.Runtime.SetPodFault("a", plegtest.Fail(errInspect))
		r.Runtime.Set("a", "c=exited /s=running")
		for range 3 {
			asked := time.Now()
			kit.Relist(1)
			kit.RequireEvents(t, events)
			if status, err := r.Cache().Get("a"); status != nil || !errors.Is(err, errInspect) {
				t.Errorf("cache = %+v, %v, want the error of the inspection", status, err)
			}
			if _, err := r.Cache().GetNewerThan(t.Context(), "a", asked); !errors.Is(err, errInspect) {
				t.Errorf("GetNewerThan = %v, want the error of the inspection", err)
			}
		}
		r.Runtime.Set("a", "d=running c=exited /s=running")
		kit.Relist(1)
		kit.RequireEvents(t, events)
		r.Runtime.SetPodFault("a", nil)
		kit.Relist(1)
		kit.RequireEvents(t, events, "a", "Died(c) Started(d)")
		for range 5 {
			kit.Relist(1)
		}
		kit.RequireEvents(t, events)
		// The first, one failure at each of four relists, and the success.
		if inspected := r.Runtime.Counts().Inspections["a"]; inspected != 6 {
			t.Errorf("inspections = %d, want 6: one at each relist until it succeeds", inspected)
		}
	})
}

// A hung pod delays no other pod, no relist, and no GetNewerThan of another pod.
func TestInvariantNoHeadOfLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{Inspectors: 2})
		events := r.Events(t, 0)
		r.Runtime.Set("still", "c=running")
		r.Start(t)
		synctest.Wait()
		kit.RequireEvents(t, events, "still", "Started(c)")
		r.Runtime.SetPodFault("hung", plegtest.Hang)
		r.Runtime.Set("hung", "c=running")
		want := []string{}
		for n := range 20 {
			uid := fmt.Sprint("other-", n)
			r.Runtime.Set(pleg.PodUID(uid), "c=running")
			want = append(want, uid, "Started(c)")
		}
		asked := time.Now()
		kit.Relist(1)
		kit.RequireEvents(t, events, want...)
		for _, uid := range []pleg.PodUID{"still", "other-0", "other-19", "nobody"} {
			if !promises.Fresh(r.Cache(), uid, asked) {
				t.Errorf("no status of pod %s that is newer than before the relist", uid)
			}
		}
		if promises.Fresh(r.Cache(), "hung", asked) {
			t.Error("the hung pod counts as inspected")
		}
		for n := range 10 {
			r.Runtime.Remove(pleg.PodUID(fmt.Sprint("other-", n)))
			kit.Relist(1)
			kit.RequireEvents(t, events, fmt.Sprint("other-", n), "Died(c) Removed(c)")
		}
		if listed := r.Runtime.Counts().Lists; listed != 12 {
			t.Errorf("lists = %d, want 12: one a second", listed)
		}
		if ok, err := r.Healthy(); !ok {
			t.Errorf("Healthy = %v, though every list was answered", err)
		}
	})
}

// At most one inspection per pod is in flight, and Inspectors in all, beside as many that
// were overtaken or are trials. Every call has a deadline.
func TestInvariantBounds(t *testing.T) {
	const pods, inspectors = 50, 4
	synctest.Test(t, func(t *testing.T) {
		r := kit.New(t, pipeline.Options{Inspectors: inspectors})
		r.Start(t)
		synctest.Wait()
		for n := range pods {
			uid := pleg.PodUID(fmt.Sprint(n))
			r.Runtime.SetPodFault(uid, plegtest.Delay(300*time.Millisecond))
			r.Runtime.Set(uid, "c=running")
		}
		r.Runtime.SetPodFault("1", plegtest.Delay(6*time.Second)) // and it changes all the while
		for n := range 8 {
			r.RequestReinspect("0")
			r.Runtime.Set("1", fmt.Sprintf("c%d=running", n))
			kit.Relist(1)
		}
		got := r.Runtime.Counts()
		if got.Peak < inspectors || got.Peak > 2*inspectors || got.PeakPerPod != 1 || got.WithoutDeadline != 0 {
			t.Errorf("%+v: want %d to %d inspections at a time, 1 of each pod, and a deadline for each call", got, inspectors, 2*inspectors)
		}
	})
}
