package differ_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// hungFor is how long a hung inspection has run when the differ hears of it.
const hungFor = 2 * time.Second

// errHung is the error of a hung inspection.
var errHung = &pleg.CallError{Call: pleg.Call{Method: "ContainerStatus", Container: "c"}, Err: errInspect}

// settleHung settles the inspection of a pod as hung.
func (f *fixture) settleHung(uid pleg.PodUID) {
	f.sendSettled(stage.Settled{UID: uid, Err: errHung, Took: hungFor, Hung: hungFor})
}

// nextRetry returns the retry that the differ offers, if any.
func (f *fixture) nextRetry() (stage.Change, bool) {
	synctest.Wait()
	select {
	case c := <-f.retry:
		return c, true
	default:
		return stage.Change{}, false
	}
}

// requireRetry receives a retry of the pod, after the given number of hung
// inspections.
func (f *fixture) requireRetry(t *testing.T, uid pleg.PodUID, words string, times int) {
	t.Helper()
	c, ok := f.nextRetry()
	if got := plegtest.Words(c.Events...); !ok || c.UID != uid || got != words {
		t.Fatalf("retry of pod %q with %q (%v), want pod %s with %q", c.UID, got, ok, uid, words)
	}
	for _, q := range f.differ.Quarantined() {
		if q.UID == uid && q.Hung != times {
			t.Fatalf("retry of pod %q after %d hung, want %d", uid, q.Hung, times)
		}
	}
}

func (f *fixture) requireNoRetry(t *testing.T) {
	t.Helper()
	if c, ok := f.nextRetry(); ok {
		t.Fatalf("unexpected retry of pod %s", c.UID)
	}
	f.requireNoChange(t)
}

// quarantined lists the pod; this number of its inspections hang.
func quarantined(times int) step {
	steps := []step{list("c=running"), want("Started(c)"), hang}
	for n := 1; n < times; n++ {
		steps = append(steps, wait(maxQuarantine), list("c=running"), retry("Started(c)", n), hang)
	}
	return all(steps...)
}

func retry(words string, times int) step {
	return func(t *testing.T, f *fixture) { f.requireRetry(t, "a", words, times) }
}

// requestRetry is a request of Relist for a pod.
func requestRetry(uid pleg.PodUID) step {
	return func(_ *testing.T, f *fixture) { f.differ.RequestRetry(uid); synctest.Wait() }
}

var (
	hang    step = func(_ *testing.T, f *fixture) { f.settleHung("a") }
	noRetry step = func(t *testing.T, f *fixture) { f.requireNoRetry(t) }
	free    step = func(t *testing.T, f *fixture) {
		if got := f.differ.Quarantined(); len(got) > 0 {
			t.Errorf("quarantined %+v, want none", got)
		}
	}
	// quarantineOther quarantines pod b too, while a waits.
	quarantineOther step = func(t *testing.T, f *fixture) {
		f.list(runningPod, plegtest.Pod("b", "c=running"))
		f.requireChange(t, "b", "Started(c)")
		f.settleHung("b")
	}
)

func TestQuarantineOfAPod(t *testing.T) {
	const still = "c=running"
	again := retry("Started(c)", 3)
	testSteps(t, map[string][]step{
		"a listing does not end the wait":         {quarantined(3), list(still), noRetry},
		"a change ends it":                        {quarantined(3), list("c=exited"), retry("Died(c)", 3), noRetry},
		"a second change does not":                {quarantined(3), list("c=exited"), retry("Died(c)", 3), hang, list("c=exited d=running"), noRetry},
		"a change that was listed twice ends it":  {quarantined(3), list("c=exited"), list("c=exited"), retry("Died(c)", 3), noRetry},
		"a CRI event ends it":                     {quarantined(3), event(1, "c=exited", "c=exited"), retry("Died(c)", 3), noRetry},
		"a reinspection request ends it":          {quarantined(3), request, list(still), again, noRetry},
		"a request during a retry ends the next":  {quarantined(3), wait(maxQuarantine), list(still), again, request, hang, list(still), retry("Started(c)", 4), noRetry},
		"a request during a retry ends only that": {quarantined(3), wait(maxQuarantine), list(still), again, requestRetry("a"), hang, list(still), retry("Started(c)", 4), hang, list(still), noRetry},
		"a relist request ends it":                {quarantined(3), requestRetry("a"), alone(1, still), again, noRetry},
		"a relist request for another pod":        {quarantined(3), requestRetry("b"), alone(1, still), noRetry},
		"success of another quarantined pod ends it": {quarantined(3), quarantineOther, func(t *testing.T, f *fixture) {
			f.list(runningPod, plegtest.Pod("b", "c=running"))
			f.requireRetry(t, "b", "Started(c)", 1)
			f.settle("b", nil)
		}, again, noRetry},
		"removal of another quarantined pod does not": {quarantined(3), quarantineOther, list(still), func(t *testing.T, f *fixture) {
			f.requireChange(t, "b", "PodSync")
			f.settle("b", nil)
		}, noRetry},
		"a relist is requested when it ends": { // the relist period may be much longer
			quarantined(3), func(_ *testing.T, f *fixture) { f.lister.relists.Store(0) },
			wait(2*period - 1), wantRelists(0), wait(1), wantRelists(1),
		},
		"a retry has the newest observation": {quarantined(1), list(still), list("c=exited"), retry("Died(c)", 1), succeed, noRetry},
		"a prompt error ends the wait, but not the quarantine": {
			quarantined(4), wait(maxQuarantine), list(still),
			all(slices.Repeat([]step{retry("Started(c)", 4), fail, noRetry, list(still)}, 3)...),
			retry("Started(c)", 4), hang, wait(8*period - 1), list(still), noRetry,
		},
		"a success resets the wait": {
			quarantined(5), wait(maxQuarantine), list(still), retry("Started(c)", 5), succeed, free,
			list("c=exited"), want("Died(c)"), hang, list("c=exited"), retry("Died(c)", 1),
		},
		"a pod that is gone needs no inspection": {quarantined(4), unlist, wantKnown("PodSync"), succeed, free, noRetry},
		"an event with its status needs none":    {quarantined(4), whole(1, "c=exited", "c=exited"), wantWhole("Died(c)"), succeed, free, noRetry},
	})
}

// A wait ends with the first listing after it.
func TestQuarantineWaitDoubles(t *testing.T) {
	again := list("c=running")
	steps := []step{again, want("Started(c)"), hang, noRetry, again, retry("Started(c)", 1), hang}
	for n, d := range []time.Duration{period, 2 * period, 4 * period, 8 * period, maxQuarantine, maxQuarantine} {
		steps = append(steps, noRetry, again, wait(d-1), again, noRetry, wait(1), again, retry("Started(c)", n+2), hang)
	}
	testDiffer(t, all(steps...))
}

func TestQuarantinedPodIsPending(t *testing.T) {
	testDiffer(t, all(quarantined(2), func(t *testing.T, f *fixture) {
		healthy := plegtest.Pod("healthy", "c=running")
		f.list(runningPod, healthy)
		f.requireChange(t, "healthy", "Started(c)")
		f.settle("healthy", nil)
		f.list(runningPod, healthy)
		f.requirePending(t, "a")
	}, alone(1, "c=running"), touched(0)))
}

func TestQuarantineIsReported(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		began := time.Now()
		quarantined(3)(t, f)
		want := []pleg.Quarantined{{
			UID: "a", Namespace: "ns", Name: "name-a", Since: began.Add(-hungFor), Hung: 3, NextTry: time.Now().Add(2 * period), Err: errHung, Call: &errHung.Call,
		}}
		if got := f.differ.Quarantined(); !slices.Equal(got, want) {
			t.Errorf("quarantined = %+v, want %+v", got, want)
		}
		kit.RequireMetric(t, f.metrics, 1, "pleg_quarantined_pods")
		f.list()
		f.nextChange()
		f.settle("a", nil)
		kit.RequireMetric(t, f.metrics, 0, "pleg_quarantined_pods")
		f.logged.RequireLines(t, 1, "level=WARN")
		f.logged.RequireLines(t, 1, "level=INFO")
		f.logged.RequireLines(t, 1, "podUID=a pod=ns/name-a age=2s failedLate=false nextTry=1s")
	})
}

// A retry that is known to hang yields once to a pod that is overdue and finds no place.
func TestRetryYieldsOnce(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		a, b := plegtest.Pod("a", "c=running"), plegtest.Pod("b", "c=running")
		f.list(a, b)
		for _, uid := range []pleg.PodUID{"a", "b"} {
			f.requireChange(t, uid, "Started(c)")
			f.sendSettled(stage.Settled{UID: uid, Err: errHung, Took: hungFor, Hung: hungFor, Proven: true})
		}
		f.list(a, b)
		f.requireRetry(t, "a", "Started(c)", 1)
		for _, tc := range []struct {
			wait time.Duration
			want []stage.Cancel
		}{{maxQuarantine + period - 1, nil}, {1, []stage.Cancel{{UID: "a", Yield: true}}}, {period, nil}} {
			time.Sleep(tc.wait)
			if got := f.cancels(); !slices.Equal(got, tc.want) {
				t.Errorf("cancelled %v after %v more, want %v", got, tc.wait, tc.want)
			}
		}
	})
}

// cancels returns what the differ wants cancelled, at most two.
func (f *fixture) cancels() (all []stage.Cancel) {
	for range 2 {
		synctest.Wait()
		select {
		case c := <-f.cancel:
			all = append(all, c)
		default:
		}
	}
	return all
}
