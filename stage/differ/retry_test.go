package differ_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func (f *fixture) settleLate(uid pleg.PodUID) {
	f.sendSettled(stage.Settled{UID: uid, Err: errInspect, Late: true})
}

// twoLate lists two pods whose inspections fail late, and lists them again.
func (f *fixture) twoLate(t *testing.T) (a, b *pleg.Pod) {
	t.Helper()
	a, b = plegtest.Pod("a", "c=running"), plegtest.Pod("b", "c=running")
	f.list(a, b)
	f.requireChange(t, "a", "Started(c)")
	f.requireChange(t, "b", "Started(c)")
	f.settleLate("a")
	f.settleLate("b")
	f.list(a, b)
	return a, b
}

// As in the serial kubelet, one call at a time is made of pods whose inspection takes
// long and fails.
func TestLateFailuresAreRetriedOneAtATime(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		a, b := f.twoLate(t)
		f.requireNoRetry(t) // until a relist period has passed
		for range 10 {      // the wait does not grow
			time.Sleep(period)
			first, _ := f.nextRetry()
			f.requireNoRetry(t)
			f.settleLate(first.UID)
			second, _ := f.nextRetry()
			f.settleLate(second.UID)
			if first.UID == second.UID {
				t.Errorf("retries %+v, %+v, want one of each pod", first, second)
			}
			f.list(a, b)
		}
	})
}

// No pod waits longer than MaxQuarantine, also if the late retry of another one takes long.
func TestOverdueLateFailureIsRetriedBesideAnother(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		a, b := f.twoLate(t)
		time.Sleep(period)
		f.requireRetry(t, "a", "Started(c)", 1)
		time.Sleep(maxQuarantine - period - 1)
		f.list(a, b)
		f.requireNoRetry(t)
		time.Sleep(time.Nanosecond)
		f.list(a, b)
		f.requireRetry(t, "b", "Started(c)", 1)
	})
}

// A success starts the count of failures again.
func TestFailuresInARowCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 2)
		for n, words := range []string{"c=running", "c=exited", "c=exited d=running"} {
			pod := plegtest.Pod("a", words)
			f.list(pod)
			f.settleAll(errInspect)
			f.list(pod)
			if c, ok := f.nextChange(); !ok || c.Uninspected {
				t.Errorf("change %d after one failure: %+v, want one to inspect", n, c)
			}
			f.settle("a", nil)
		}
	})
}

// A retry goes before other pods if it waited for MaxQuarantine or was requested.
func TestRetryGoesFirst(t *testing.T) {
	hung, other := plegtest.Pod("hung", "c=running"), plegtest.Pod("other", "c=running")
	for name, tc := range map[string]struct {
		late    bool
		wait    time.Duration
		request bool
		want    bool
	}{
		"waited for less":                {wait: maxQuarantine - 1},
		"waited for MaxQuarantine":       {wait: maxQuarantine, want: true},
		"requested":                      {request: true, want: true},
		"late, waited for less":          {late: true, wait: maxQuarantine - 1},
		"late, waited for MaxQuarantine": {late: true, wait: maxQuarantine, want: true},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.list(hung)
			f.requireChange(t, "hung", "Started(c)")
			if tc.late {
				f.settleLate("hung")
			} else {
				f.settleHung("hung")
			}
			f.list(hung, other)
			time.Sleep(tc.wait)
			if tc.request {
				f.differ.RequestRetry("hung")
			}
			f.list(hung, other)
			if _, ok := f.nextRetry(); ok != tc.want {
				t.Errorf("retry before another pod: %v, want %v", ok, tc.want)
			}
		})
	}
}
