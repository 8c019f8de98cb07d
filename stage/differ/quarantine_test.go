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
)

// hung is how long the inspections of these tests ran before they were given up.
const hung = 2 * time.Second

// hang has the inspection of a pod under way hang.
func (f *fixture) hang(uid pleg.PodUID) {
	f.settled <- stage.Settled{UID: uid, Err: errInspect, Hung: hung}
	synctest.Wait()
}

// offered returns the retry that is offered now, if there is one.
func (f *fixture) offered() (stage.Change, bool) {
	synctest.Wait()
	select {
	case c := <-f.retry:
		return c, true
	default:
		return stage.Change{}, false
	}
}

// takeRetry takes the retry that is offered, which must be the pod's.
func (f *fixture) takeRetry(t *testing.T, uid pleg.PodUID, words string, times int) {
	t.Helper()
	c, ok := f.offered()
	if got := plegtest.Words(c.Events...); !ok || c.UID != uid || got != words || c.Hung != times {
		t.Fatalf("retry of pod %q with %q after %d that hung (%v), want pod %s with %q after %d", c.UID, got, c.Hung, ok, uid, words, times)
	}
}

func (f *fixture) requireNoRetry(t *testing.T) {
	t.Helper()
	if c, ok := f.offered(); ok {
		t.Fatalf("unexpected retry of pod %s", c.UID)
	}
	f.requireQuiet(t)
}

// quarantined lists a pod and has its inspections hang so many times.
func (f *fixture) quarantined(t *testing.T, times int, pod *pleg.Pod) {
	t.Helper()
	f.list(pod)
	f.take(t, pod.UID, "Started(c)")
	f.hang(pod.UID)
	for n := 1; n < times; n++ {
		time.Sleep(maxQuarantine)
		f.list(pod)
		f.takeRetry(t, pod.UID, "Started(c)", n)
		f.hang(pod.UID)
	}
}

// The nth wait is over with the listing after it, not with the one before.
func TestBackOffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pod := plegtest.Pod("a", "c=running")
		f.list(pod)
		f.take(t, "a", "Started(c)")
		f.hang("a")
		for n, wait := range []time.Duration{0, period, 2 * period, 4 * period, 8 * period, maxQuarantine, maxQuarantine} {
			f.requireNoRetry(t) // the listing that showed it has been tried
			if wait > 0 {
				f.list(pod)
				time.Sleep(wait - 1)
				f.list(pod)
				f.requireNoRetry(t)
				time.Sleep(time.Nanosecond)
			} else {
				f.list(pod)
			}
			f.takeRetry(t, "a", "Started(c)", n+1)
			f.hang("a")
		}
	})
}

func TestSuccessForgetsTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.quarantined(t, 5, plegtest.Pod("a", "c=running"))
		time.Sleep(maxQuarantine)
		f.list(plegtest.Pod("a", "c=running"))
		f.takeRetry(t, "a", "Started(c)", 5)
		f.settle("a", nil)
		if got := f.differ.Quarantined(); len(got) > 0 {
			t.Errorf("quarantined %+v after a success", got)
		}
		f.list(plegtest.Pod("a", "c=exited"))
		f.take(t, "a", "Died(c)") // on the channel of all others
		f.hang("a")
		f.list(plegtest.Pod("a", "c=exited"))
		f.takeRetry(t, "a", "Died(c)", 1)
	})
}

// What ends the wait of a pod early, and what does not.
func TestWhatEndsAWait(t *testing.T) {
	pod := func(words string) *pleg.Pod { return plegtest.Pod("a", words) }
	for name, tc := range map[string]struct {
		do   func(t *testing.T, f *fixture)
		want string // the events of the retry; empty for none
	}{
		"a listing": {do: func(_ *testing.T, f *fixture) { f.list(pod("c=running")) }},
		"a change":  {do: func(_ *testing.T, f *fixture) { f.list(pod("c=exited")) }, want: "Died(c)"},
		"a second change": {do: func(t *testing.T, f *fixture) {
			f.list(pod("c=exited"))
			f.takeRetry(t, "a", "Died(c)", 3)
			f.hang("a")
			f.list(pod("c=exited d=running"))
		}},
		"a change that a listing showed again": {do: func(_ *testing.T, f *fixture) {
			f.list(pod("c=exited"))
			f.list(pod("c=exited"))
		}, want: "Died(c)"},
		"a request for a reinspection": {do: func(_ *testing.T, f *fixture) {
			f.request("a")
			f.list(pod("c=running"))
		}, want: "Started(c)"},
		"a request while it is tried": {do: func(t *testing.T, f *fixture) {
			time.Sleep(maxQuarantine)
			f.list(pod("c=running"))
			f.takeRetry(t, "a", "Started(c)", 3)
			f.request("a")
			f.hang("a")
			f.list(pod("c=running"))
		}, want: "Started(c)"},
		"a request while it was tried before": {do: func(t *testing.T, f *fixture) {
			time.Sleep(maxQuarantine)
			f.list(pod("c=running"))
			f.takeRetry(t, "a", "Started(c)", 3)
			f.differ.RequestRetry("a")
			synctest.Wait()
			f.hang("a")
			f.list(pod("c=running"))
			f.takeRetry(t, "a", "Started(c)", 4)
			f.hang("a")
			f.list(pod("c=running"))
		}},
		"a request for a relist": {do: func(_ *testing.T, f *fixture) {
			f.differ.RequestRetry("a")
			f.observe(stage.Observation{UID: "a", At: at(f.lists).Add(1), Pod: pod("c=running")})
		}, want: "Started(c)"},
		"a relist of another": {do: func(_ *testing.T, f *fixture) {
			f.differ.RequestRetry("b")
			f.observe(stage.Observation{UID: "a", At: at(f.lists).Add(1), Pod: pod("c=running")})
		}},
		"an event": {do: func(_ *testing.T, f *fixture) { f.hear(1, hint("a", "c=exited", "c=exited")) }, want: "Died(c)"},
		"the success of another": {do: func(t *testing.T, f *fixture) {
			f.list(pod("c=running"), plegtest.Pod("b", "c=running"))
			f.take(t, "b", "Started(c)")
			f.hang("b")
			f.list(pod("c=running"), plegtest.Pod("b", "c=running"))
			f.takeRetry(t, "b", "Started(c)", 1)
			f.settle("b", nil)
		}, want: "Started(c)"},
		"the end of another": {do: func(t *testing.T, f *fixture) {
			f.list(pod("c=running"), plegtest.Pod("b", "c=running"))
			f.take(t, "b", "Started(c)")
			f.hang("b")
			f.list(pod("c=running"))
			f.take(t, "b", "PodSync")
			f.settle("b", nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.quarantined(t, 3, pod("c=running"))
				tc.do(t, f)
				c, ok := f.offered()
				if words := plegtest.Words(c.Events...); ok != (tc.want != "") || ok && c.UID != "a" {
					t.Errorf("retry of pod %q with %q: %v, want one: %v", c.UID, words, ok, tc.want != "")
				}
				f.requireQuiet(t)
			})
		})
	}
}

// A pod in quarantine that is gone, or whose status comes with an event, is
// settled at once: there is nothing to ask.
func TestWhatNeedsNoInspectionDoesNotWait(t *testing.T) {
	for name, do := range map[string]func(f *fixture){
		"gone":   func(f *fixture) { f.list() },
		"status": func(f *fixture) { f.hear(1, full(hint("a", "c=exited", "c=exited"))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.quarantined(t, 4, plegtest.Pod("a", "c=running"))
				do(f)
				c, ok := f.poll()
				if !ok || !c.known || c.UID != "a" {
					t.Fatalf("change %+v: %v, want one that needs no inspection", c, ok)
				}
				f.settle("a", nil)
				if got := f.differ.Quarantined(); len(got) > 0 {
					t.Errorf("quarantined %+v, want none", got)
				}
				f.requireNoRetry(t)
			})
		})
	}
}

func TestFreshPodsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		sick, well := plegtest.Pod("sick", "c=running"), plegtest.Pod("well", "c=running")
		f.quarantined(t, 1, sick)
		f.list(sick, well)
		if c, ok := f.offered(); ok {
			t.Errorf("retry of pod %s while another waits for an inspector", c.UID)
		}
		f.take(t, "well", "Started(c)")
		f.takeRetry(t, "sick", "Started(c)", 1)
	})
}

// A pod that waits for its retry is not under way: what is tried is what it is
// by then.
func TestRetryIsOfTheNewestObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.quarantined(t, 1, plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=exited"))
		f.takeRetry(t, "a", "Died(c)", 1)
		f.settle("a", nil)
		f.requireNoRetry(t)
	})
}

// An error that comes back promptly is tried again at the next listing.
func TestPromptErrorEndsTheWaitButNotTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		pod := plegtest.Pod("a", "c=running")
		f.quarantined(t, 4, pod)
		time.Sleep(maxQuarantine)
		f.list(pod)
		for range 3 {
			f.takeRetry(t, "a", "Started(c)", 4)
			f.settle("a", errInspect)
			f.requireNoRetry(t)
			f.list(pod)
		}
		f.takeRetry(t, "a", "Started(c)", 4)
		f.hang("a")
		time.Sleep(8*period - 1)
		f.list(pod)
		f.requireNoRetry(t)
	})
}

// In its quarantine a pod is not covered by the listings, and all others are.
func TestQuarantinedPodIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		sick, well := plegtest.Pod("sick", "c=running"), plegtest.Pod("well", "c=running")
		f.quarantined(t, 2, sick)
		f.list(sick, well)
		f.take(t, "well", "Started(c)")
		f.settle("well", nil)
		f.list(sick, well)
		f.requirePending(t, "sick")
		f.observe(stage.Observation{UID: "sick", At: at(f.lists).Add(1), Pod: sick})
		if at, ok := f.cache.touched["sick"]; ok {
			t.Errorf("touched at %v, though it has not been inspected", at)
		}
	})
}

// Between two listings that are far apart, one is asked for when a wait ends.
func TestListingIsAskedForWhenAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.quarantined(t, 3, plegtest.Pod("a", "c=running"))
		before := f.lister.relists.Load()
		time.Sleep(2*period - 1)
		synctest.Wait()
		if got := f.lister.relists.Load(); got != before {
			t.Errorf("asked for %d listings before the wait has ended", got-before)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := f.lister.relists.Load(); got != before+1 {
			t.Errorf("asked for %d listings at the end of the wait, want 1", got-before)
		}
	})
}

func TestQuarantineIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		began := time.Now()
		f.quarantined(t, 3, plegtest.Pod("a", "c=running"))
		want := []pleg.Quarantined{{
			UID: "a", Namespace: "ns", Name: "name-a", Since: began, Hung: 3, NextTry: time.Now().Add(2 * period), Err: errInspect,
		}}
		if got := f.differ.Quarantined(); !slices.Equal(got, want) {
			t.Errorf("quarantined = %+v, want %+v", got, want)
		}
		gauge := func(want int) {
			t.Helper()
			text := fmt.Sprintf("# HELP pleg_quarantined_pods Pods whose last inspection hung; each retry waits longer than the one before.\n"+
				"# TYPE pleg_quarantined_pods gauge\npleg_quarantined_pods %d\n", want)
			if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(text), "pleg_quarantined_pods"); err != nil {
				t.Error(err)
			}
		}
		gauge(1)
		f.list()
		f.poll()
		f.settle("a", nil)
		gauge(0)
		warns, infos := strings.Count(f.logged.String(), "level=WARN"), strings.Count(f.logged.String(), "level=INFO")
		if warns != 1 || infos != 1 || !strings.Contains(f.logged.String(), "podUID=a pod=ns/name-a age=2s nextTry=1s") {
			t.Errorf("logged %d warnings and %d infos, want one each:\n%s", warns, infos, &f.logged)
		}
	})
}

// A pod in quarantine is delivered uninspected all the same.
func TestHungInspectionsCountAsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newDelivering(t, 2)
		pod := plegtest.Pod("a", "c=running")
		f.quarantined(t, 2, pod)
		c, ok := f.poll()
		if !ok || !c.Uninspected || plegtest.Words(c.Events...) != "Started(c)" {
			t.Fatalf("change %+v: %v, want the events uninspected", c, ok)
		}
		f.settle("a", nil)
		if got := f.differ.Quarantined(); len(got) != 1 {
			t.Errorf("quarantined %+v, want the pod still", got)
		}
		time.Sleep(maxQuarantine)
		f.list(pod)
		f.takeRetry(t, "a", "PodSync", 2)
		f.hang("a")
		if got := f.differ.Quarantined(); len(got) != 1 || got[0].Hung != 3 || !errors.Is(got[0].Err, errInspect) {
			t.Errorf("quarantined %+v, want the pod, hung 3 times", got)
		}
	})
}
