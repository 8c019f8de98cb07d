package differ_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// hungFor is how long a hung inspection has run when the differ hears of it.
const hungFor = 2 * time.Second

// settleHung settles the inspection of a pod as hung.
func (f *fixture) settleHung(uid pleg.PodUID) {
	f.settled <- stage.Settled{UID: uid, Err: errInspect, Hung: hungFor}
	synctest.Wait()
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

// quarantine lists a pod; the given number of its inspections hang.
func (f *fixture) quarantine(t *testing.T, times int, pod *pleg.Pod) {
	t.Helper()
	f.list(pod)
	f.requireChange(t, pod.UID, "Started(c)")
	f.settleHung(pod.UID)
	for n := 1; n < times; n++ {
		time.Sleep(maxQuarantine)
		f.list(pod)
		f.requireRetry(t, pod.UID, "Started(c)", n)
		f.settleHung(pod.UID)
	}
}

// A wait ends with the first listing after it.
func TestQuarantineWaitDoubles(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		pod := plegtest.Pod("a", "c=running")
		f.list(pod)
		f.requireChange(t, "a", "Started(c)")
		f.settleHung("a")
		for n, wait := range []time.Duration{0, period, 2 * period, 4 * period, 8 * period, maxQuarantine, maxQuarantine} {
			f.requireNoRetry(t) // until the next listing
			if wait > 0 {
				f.list(pod)
				time.Sleep(wait - 1)
				f.list(pod)
				f.requireNoRetry(t)
				time.Sleep(time.Nanosecond)
			}
			f.list(pod)
			f.requireRetry(t, "a", "Started(c)", n+1)
			f.settleHung("a")
		}
	})
}

func TestSuccessResetsTheWait(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.quarantine(t, 5, plegtest.Pod("a", "c=running"))
		time.Sleep(maxQuarantine)
		f.list(plegtest.Pod("a", "c=running"))
		f.requireRetry(t, "a", "Started(c)", 5)
		f.settle("a", nil)
		if got := f.differ.Quarantined(); len(got) > 0 {
			t.Errorf("quarantined %+v after a success", got)
		}
		f.list(plegtest.Pod("a", "c=exited"))
		f.requireChange(t, "a", "Died(c)") // on the channel for pods that are not quarantined
		f.settleHung("a")
		f.list(plegtest.Pod("a", "c=exited"))
		f.requireRetry(t, "a", "Died(c)", 1)
	})
}

// waitCases begin with a pod whose inspection hung 3 times.
var waitCases = map[string]struct {
	do   func(t *testing.T, f *fixture)
	want string // the events of the retry; empty if there is none
}{
	"listing": {do: func(_ *testing.T, f *fixture) { f.list(runningPod) }},
	"change":  {do: func(_ *testing.T, f *fixture) { f.list(exitedPod) }, want: "Died(c)"},
	"second change": {do: func(t *testing.T, f *fixture) {
		f.list(exitedPod)
		f.requireRetry(t, "a", "Died(c)", 3)
		f.settleHung("a")
		f.list(plegtest.Pod("a", "c=exited d=running"))
	}},
	"change that was listed twice": {do: func(_ *testing.T, f *fixture) {
		f.list(exitedPod)
		f.list(exitedPod)
	}, want: "Died(c)"},
	"reinspection request": {do: func(_ *testing.T, f *fixture) {
		f.requestReinspect("a")
		f.list(runningPod)
	}, want: "Started(c)"},
	"reinspection request during a retry": {do: func(t *testing.T, f *fixture) {
		time.Sleep(maxQuarantine)
		f.list(runningPod)
		f.requireRetry(t, "a", "Started(c)", 3)
		f.requestReinspect("a")
		f.settleHung("a")
		f.list(runningPod)
	}, want: "Started(c)"},
	"second retry after a request during a retry": {do: func(t *testing.T, f *fixture) {
		time.Sleep(maxQuarantine)
		f.list(runningPod)
		f.requireRetry(t, "a", "Started(c)", 3)
		f.differ.RequestRetry("a")
		synctest.Wait()
		f.settleHung("a")
		f.list(runningPod)
		f.requireRetry(t, "a", "Started(c)", 4)
		f.settleHung("a")
		f.list(runningPod)
	}},
	"relist request": {do: func(_ *testing.T, f *fixture) {
		f.differ.RequestRetry("a")
		f.sendObservation(stage.Observation{UID: "a", At: at(f.lists).Add(1), Pod: runningPod})
	}, want: "Started(c)"},
	"relist request for another pod": {do: func(_ *testing.T, f *fixture) {
		f.differ.RequestRetry("b")
		f.sendObservation(stage.Observation{UID: "a", At: at(f.lists).Add(1), Pod: runningPod})
	}},
	"CRI event": {do: func(_ *testing.T, f *fixture) { f.sendHint(1, hint("a", "c=exited", "c=exited")) }, want: "Died(c)"},
	"success of another quarantined pod": {do: func(t *testing.T, f *fixture) {
		f.quarantineBoth(t)
		f.list(runningPod, plegtest.Pod("b", "c=running"))
		f.requireRetry(t, "b", "Started(c)", 1)
		f.settle("b", nil)
	}, want: "Started(c)"},
	"removal of another quarantined pod": {do: func(t *testing.T, f *fixture) {
		f.quarantineBoth(t)
		f.list(runningPod)
		f.requireChange(t, "b", "PodSync")
		f.settle("b", nil)
	}},
}

// quarantineBoth quarantines pod b too.
func (f *fixture) quarantineBoth(t *testing.T) {
	t.Helper()
	f.list(runningPod, plegtest.Pod("b", "c=running"))
	f.requireChange(t, "b", "Started(c)")
	f.settleHung("b")
}

func TestQuarantineWaitEndsEarly(t *testing.T) {
	for name, tc := range waitCases {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.quarantine(t, 3, runningPod)
			tc.do(t, f)
			c, ok := f.nextRetry()
			if got := plegtest.Words(c.Events...); got != tc.want || ok != (tc.want != "") || ok && c.UID != "a" {
				t.Errorf("retry of pod %q with %q: %v, want pod a with %q", c.UID, got, ok, tc.want)
			}
			f.requireNoChange(t)
		})
	}
}

// If a quarantined pod is gone, or a CRI event has its status, it needs no
// inspection.
func TestQuarantineEndsWithoutInspection(t *testing.T) {
	for name, do := range map[string]func(f *fixture){
		"gone":   func(f *fixture) { f.list() },
		"status": func(f *fixture) { f.sendHint(1, withStatus(hint("a", "c=exited", "c=exited"))) },
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.quarantine(t, 4, plegtest.Pod("a", "c=running"))
			do(f)
			c, ok := f.nextChange()
			if !ok || !c.known || c.UID != "a" {
				t.Fatalf("change %+v: %v, want one that needs no inspection", c, ok)
			}
			f.settle("a", nil)
			if got := f.differ.Quarantined(); len(got) > 0 {
				t.Errorf("quarantined %+v, want none", got)
			}
			f.requireNoRetry(t)
		})
	}
}

func TestRetriesWaitForFirstInspections(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		hung, healthy := plegtest.Pod("hung", "c=running"), plegtest.Pod("healthy", "c=running")
		f.quarantine(t, 1, hung)
		f.list(hung, healthy)
		if c, ok := f.nextRetry(); ok {
			t.Errorf("retry of pod %s while another pod waits for its first inspection", c.UID)
		}
		f.requireChange(t, "healthy", "Started(c)")
		f.requireRetry(t, "hung", "Started(c)", 1)
	})
}

func TestRetryUsesTheNewestObservation(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.quarantine(t, 1, plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=exited"))
		f.requireRetry(t, "a", "Died(c)", 1)
		f.settle("a", nil)
		f.requireNoRetry(t)
	})
}

// If a retry fails without hanging, the next listing retries it.
func TestPromptErrorEndsTheWaitButNotTheQuarantine(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		pod := plegtest.Pod("a", "c=running")
		f.quarantine(t, 4, pod)
		time.Sleep(maxQuarantine)
		f.list(pod)
		for range 3 {
			f.requireRetry(t, "a", "Started(c)", 4)
			f.settle("a", errInspect)
			f.requireNoRetry(t)
			f.list(pod)
		}
		f.requireRetry(t, "a", "Started(c)", 4)
		f.settleHung("a")
		time.Sleep(8*period - 1)
		f.list(pod)
		f.requireNoRetry(t)
	})
}

func TestQuarantinedPodIsPending(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		hung, healthy := plegtest.Pod("hung", "c=running"), plegtest.Pod("healthy", "c=running")
		f.quarantine(t, 2, hung)
		f.list(hung, healthy)
		f.requireChange(t, "healthy", "Started(c)")
		f.settle("healthy", nil)
		f.list(hung, healthy)
		f.requirePending(t, "hung")
		f.sendObservation(stage.Observation{UID: "hung", At: at(f.lists).Add(1), Pod: hung})
		if at, ok := f.cache.touched["hung"]; ok {
			t.Errorf("touched at %v without an inspection", at)
		}
	})
}

// The relist period may be much longer than the wait.
func TestRelistIsRequestedWhenAWaitEnds(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.quarantine(t, 3, plegtest.Pod("a", "c=running"))
		before := f.lister.relists.Load()
		time.Sleep(2*period - 1)
		synctest.Wait()
		if got := f.lister.relists.Load(); got != before {
			t.Errorf("%d relists requested before the wait has ended", got-before)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := f.lister.relists.Load(); got != before+1 {
			t.Errorf("%d relists requested at the end of the wait, want 1", got-before)
		}
	})
}

func TestQuarantineIsReported(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		began := time.Now()
		f.quarantine(t, 3, plegtest.Pod("a", "c=running"))
		want := []pleg.Quarantined{{
			UID: "a", Namespace: "ns", Name: "name-a", Since: began, Hung: 3, NextTry: time.Now().Add(2 * period), Err: errInspect,
		}}
		if got := f.differ.Quarantined(); !slices.Equal(got, want) {
			t.Errorf("quarantined = %+v, want %+v", got, want)
		}
		gauge := func(want int) {
			t.Helper()
			text := fmt.Sprintf("# HELP pleg_quarantined_pods Pods whose last inspection hung or failed late; their retries wait.\n"+
				"# TYPE pleg_quarantined_pods gauge\npleg_quarantined_pods %d\n", want)
			if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(text), "pleg_quarantined_pods"); err != nil {
				t.Error(err)
			}
		}
		gauge(1)
		f.list()
		f.nextChange()
		f.settle("a", nil)
		gauge(0)
		warns, infos := strings.Count(f.logged.String(), "level=WARN"), strings.Count(f.logged.String(), "level=INFO")
		if warns != 1 || infos != 1 || !strings.Contains(f.logged.String(), "podUID=a pod=ns/name-a age=2s failedLate=false nextTry=1s") {
			t.Errorf("logged %d warnings and %d infos, want one each:\n%s", warns, infos, &f.logged)
		}
	})
}

// Quarantine does not prevent uninspected delivery.
func TestHungInspectionsCountAsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 2)
		pod := plegtest.Pod("a", "c=running")
		f.quarantine(t, 2, pod)
		c, ok := f.nextChange()
		if !ok || !c.Uninspected || plegtest.Words(c.Events...) != "Started(c)" {
			t.Fatalf("change %+v: %v, want an uninspected change", c, ok)
		}
		f.settle("a", nil)
		if got := f.differ.Quarantined(); len(got) != 1 {
			t.Errorf("quarantined %+v, want pod a", got)
		}
		time.Sleep(maxQuarantine)
		f.list(pod)
		f.requireRetry(t, "a", "PodSync", 2)
		f.settleHung("a")
		if got := f.differ.Quarantined(); len(got) != 1 || got[0].Hung != 3 || !errors.Is(got[0].Err, errInspect) {
			t.Errorf("quarantined %+v, want pod a, hung 3 times", got)
		}
	})
}

func (f *fixture) settleLate(uid pleg.PodUID) {
	f.settled <- stage.Settled{UID: uid, Err: errInspect, Late: true}
	synctest.Wait()
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
	sick, other := plegtest.Pod("sick", "c=running"), plegtest.Pod("other", "c=running")
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
			f.list(sick)
			f.requireChange(t, "sick", "Started(c)")
			if tc.late {
				f.settleLate("sick")
			} else {
				f.settleHung("sick")
			}
			f.list(sick, other)
			time.Sleep(tc.wait)
			if tc.request {
				f.differ.RequestRetry("sick")
			}
			f.list(sick, other)
			if _, ok := f.nextRetry(); ok != tc.want {
				t.Errorf("retry before another pod: %v, want %v", ok, tc.want)
			}
		})
	}
}

// If nothing of what is being inspected exists any more, the inspector is asked to
// cancel, and then the pod is compared at once.
func TestSupersededInspection(t *testing.T) {
	for name, tc := range map[string]struct {
		after []*pleg.Pod
		asks  bool
		want  string
	}{
		"gone":     {asks: true, want: "Died(c) Removed(c)"},
		"replaced": {after: []*pleg.Pod{plegtest.Pod("a", "d=running")}, asks: true, want: "Died(c) Removed(c) Started(d)"},
		"changed":  {after: []*pleg.Pod{plegtest.Pod("a", "c=exited d=running")}},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(plegtest.Pod("a", "c=running"))
			f.requestReinspect("a")
			f.list(plegtest.Pod("a", "c=running"))
			f.requireChange(t, "a", "PodSync")
			before := f.lister.relists.Load()
			f.list(tc.after...)
			f.requireNoChange(t)
			if got := len(f.superseded) > 0; got != tc.asks {
				t.Fatalf("asked the inspector to cancel: %v, want %v", got, tc.asks)
			}
			if n := f.lister.relists.Load(); (n > before) != tc.asks {
				t.Errorf("%d lists requested, want some: %v", n-before, tc.asks)
			}
			if !tc.asks {
				return
			}
			f.settled <- stage.Settled{UID: "a", Err: errInspect, Hung: time.Second, Superseded: true}
			f.requireChange(t, "a", tc.want)
			f.settle("a", nil)
			if got := f.differ.Quarantined(); len(got) > 0 {
				t.Errorf("quarantined %+v, want none", got)
			}
			if n, first := f.differ.Waiting(); n > 0 || len(first) > 0 {
				t.Errorf("%d pods wait: %+v", n, first)
			}
		})
	}
}

// A pod that was removed while its inspection failed is told at once.
func TestGoneWhileItsInspectionFailed(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=exited"))
		f.requireChange(t, "a", "Died(c)")
		f.list()
		f.settleHung("a")
		f.requireKnownChange(t, "a", "Died(c) Removed(c)")
	})
}

func TestWaiting(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		var pods []*pleg.Pod
		for n := range 5 {
			pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint(n)), "c=running"))
			f.list(pods...)
			time.Sleep(time.Second)
		}
		began := time.Now().Add(-5 * time.Second)
		require := func(want ...int) {
			t.Helper()
			var first []differ.WaitingPod
			for _, n := range want[:min(len(want), 3)] {
				first = append(first, differ.WaitingPod{Name: fmt.Sprintf("ns/name-%d", n), Since: began.Add(time.Duration(n) * time.Second)})
			}
			if n, got := f.differ.Waiting(); n != len(want) || !slices.Equal(got, first) {
				t.Errorf("%d pods wait, first %+v; want %d, first %+v", n, got, len(want), first)
			}
		}
		require(0, 1, 2, 3, 4)
		f.settleHung("0") // waits further
		f.settle("1", nil)
		require(0, 2, 3, 4)
		f.settle("4", nil)
		f.settle("3", nil)
		require(0, 2)
		f.settle("2", nil)
		require(0)
	})
}
