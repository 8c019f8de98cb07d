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
func (b *bed) hang(uid pleg.PodUID) {
	b.settled <- stage.Settled{UID: uid, Err: errInspect, Hung: hung}
	synctest.Wait()
}

// offered returns the retry that is offered now, if there is one.
func (b *bed) offered() (stage.Change, bool) {
	synctest.Wait()
	select {
	case c := <-b.retry:
		return c, true
	default:
		return stage.Change{}, false
	}
}

// takeRetry takes the retry that is offered, which must be the pod's.
func (b *bed) takeRetry(t *testing.T, uid pleg.PodUID, words string, times int) {
	t.Helper()
	c, ok := b.offered()
	if got := plegtest.Words(c.Events...); !ok || c.UID != uid || got != words || c.Hung != times {
		t.Fatalf("retry of pod %q with %q after %d that hung (%v), want pod %s with %q after %d", c.UID, got, c.Hung, ok, uid, words, times)
	}
}

func (b *bed) requireNoRetry(t *testing.T) {
	t.Helper()
	if c, ok := b.offered(); ok {
		t.Fatalf("unexpected retry of pod %s", c.UID)
	}
	b.requireQuiet(t)
}

// quarantined lists a pod and has its inspections hang so many times.
func (b *bed) quarantined(t *testing.T, times int, pod *pleg.Pod) {
	t.Helper()
	b.list(pod)
	b.take(t, pod.UID, "Started(c)")
	b.hang(pod.UID)
	for n := 1; n < times; n++ {
		time.Sleep(maxQuarantine)
		b.list(pod)
		b.takeRetry(t, pod.UID, "Started(c)", n)
		b.hang(pod.UID)
	}
}

// The nth wait is over with the listing after it, not with the one before.
func TestBackOffGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		pod := plegtest.Pod("a", "c=running")
		b.list(pod)
		b.take(t, "a", "Started(c)")
		b.hang("a")
		for n, wait := range []time.Duration{0, period, 2 * period, 4 * period, 8 * period, maxQuarantine, maxQuarantine} {
			b.requireNoRetry(t) // the listing that showed it has been tried
			if wait > 0 {
				b.list(pod)
				time.Sleep(wait - 1)
				b.list(pod)
				b.requireNoRetry(t)
				time.Sleep(time.Nanosecond)
			} else {
				b.list(pod)
			}
			b.takeRetry(t, "a", "Started(c)", n+1)
			b.hang("a")
		}
	})
}

func TestSuccessForgetsTheBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.quarantined(t, 5, plegtest.Pod("a", "c=running"))
		time.Sleep(maxQuarantine)
		b.list(plegtest.Pod("a", "c=running"))
		b.takeRetry(t, "a", "Started(c)", 5)
		b.settle("a", nil)
		if got := b.differ.Quarantined(); len(got) > 0 {
			t.Errorf("quarantined %+v after a success", got)
		}
		b.list(plegtest.Pod("a", "c=exited"))
		b.take(t, "a", "Died(c)") // on the channel of all others
		b.hang("a")
		b.list(plegtest.Pod("a", "c=exited"))
		b.takeRetry(t, "a", "Died(c)", 1)
	})
}

// What ends the wait of a pod early, and what does not.
func TestWhatEndsAWait(t *testing.T) {
	pod := func(words string) *pleg.Pod { return plegtest.Pod("a", words) }
	for name, tc := range map[string]struct {
		do   func(t *testing.T, b *bed)
		want string // the events of the retry; empty for none
	}{
		"a listing": {do: func(_ *testing.T, b *bed) { b.list(pod("c=running")) }},
		"a change":  {do: func(_ *testing.T, b *bed) { b.list(pod("c=exited")) }, want: "Died(c)"},
		"a second change": {do: func(t *testing.T, b *bed) {
			b.list(pod("c=exited"))
			b.takeRetry(t, "a", "Died(c)", 3)
			b.hang("a")
			b.list(pod("c=exited d=running"))
		}},
		"a change that a listing showed again": {do: func(_ *testing.T, b *bed) {
			b.list(pod("c=exited"))
			b.list(pod("c=exited"))
		}, want: "Died(c)"},
		"a request for a reinspection": {do: func(_ *testing.T, b *bed) {
			b.request("a")
			b.list(pod("c=running"))
		}, want: "Started(c)"},
		"a request while it is tried": {do: func(t *testing.T, b *bed) {
			time.Sleep(maxQuarantine)
			b.list(pod("c=running"))
			b.takeRetry(t, "a", "Started(c)", 3)
			b.request("a")
			b.hang("a")
			b.list(pod("c=running"))
		}, want: "Started(c)"},
		"a request while it was tried before": {do: func(t *testing.T, b *bed) {
			time.Sleep(maxQuarantine)
			b.list(pod("c=running"))
			b.takeRetry(t, "a", "Started(c)", 3)
			b.differ.RequestRetry("a")
			synctest.Wait()
			b.hang("a")
			b.list(pod("c=running"))
			b.takeRetry(t, "a", "Started(c)", 4)
			b.hang("a")
			b.list(pod("c=running"))
		}},
		"a request for a relist": {do: func(_ *testing.T, b *bed) {
			b.differ.RequestRetry("a")
			b.observe(stage.Observation{UID: "a", At: at(b.lists).Add(1), Pod: pod("c=running")})
		}, want: "Started(c)"},
		"a relist of another": {do: func(_ *testing.T, b *bed) {
			b.differ.RequestRetry("b")
			b.observe(stage.Observation{UID: "a", At: at(b.lists).Add(1), Pod: pod("c=running")})
		}},
		"an event": {do: func(_ *testing.T, b *bed) { b.hear(1, hint("a", "c=exited", "c=exited")) }, want: "Died(c)"},
		"the success of another": {do: func(t *testing.T, b *bed) {
			b.list(pod("c=running"), plegtest.Pod("b", "c=running"))
			b.take(t, "b", "Started(c)")
			b.hang("b")
			b.list(pod("c=running"), plegtest.Pod("b", "c=running"))
			b.takeRetry(t, "b", "Started(c)", 1)
			b.settle("b", nil)
		}, want: "Started(c)"},
		"the end of another": {do: func(t *testing.T, b *bed) {
			b.list(pod("c=running"), plegtest.Pod("b", "c=running"))
			b.take(t, "b", "Started(c)")
			b.hang("b")
			b.list(pod("c=running"))
			b.take(t, "b", "PodSync")
			b.settle("b", nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.quarantined(t, 3, pod("c=running"))
				tc.do(t, b)
				c, ok := b.offered()
				if words := plegtest.Words(c.Events...); ok != (tc.want != "") || ok && c.UID != "a" {
					t.Errorf("retry of pod %q with %q: %v, want one: %v", c.UID, words, ok, tc.want != "")
				}
				b.requireQuiet(t)
			})
		})
	}
}

// A pod in quarantine that is gone, or whose status comes with an event, is
// settled at once: there is nothing to ask.
func TestWhatNeedsNoInspectionDoesNotWait(t *testing.T) {
	for name, do := range map[string]func(b *bed){
		"gone":   func(b *bed) { b.list() },
		"status": func(b *bed) { b.hear(1, full(hint("a", "c=exited", "c=exited"))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.quarantined(t, 4, plegtest.Pod("a", "c=running"))
				do(b)
				c, ok := b.poll()
				if !ok || !c.known || c.UID != "a" {
					t.Fatalf("change %+v: %v, want one that needs no inspection", c, ok)
				}
				b.settle("a", nil)
				if got := b.differ.Quarantined(); len(got) > 0 {
					t.Errorf("quarantined %+v, want none", got)
				}
				b.requireNoRetry(t)
			})
		})
	}
}

func TestFreshPodsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		sick, well := plegtest.Pod("sick", "c=running"), plegtest.Pod("well", "c=running")
		b.quarantined(t, 1, sick)
		b.list(sick, well)
		if c, ok := b.offered(); ok {
			t.Errorf("retry of pod %s while another waits for an inspector", c.UID)
		}
		b.take(t, "well", "Started(c)")
		b.takeRetry(t, "sick", "Started(c)", 1)
	})
}

// A pod that waits for its retry is not under way: what is tried is what it is
// by then.
func TestRetryIsOfTheNewestObservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.quarantined(t, 1, plegtest.Pod("a", "c=running"))
		b.list(plegtest.Pod("a", "c=running"))
		b.list(plegtest.Pod("a", "c=exited"))
		b.takeRetry(t, "a", "Died(c)", 1)
		b.settle("a", nil)
		b.requireNoRetry(t)
	})
}

// An error that comes back promptly is tried again at the next listing.
func TestPromptErrorEndsTheWaitButNotTheQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		pod := plegtest.Pod("a", "c=running")
		b.quarantined(t, 4, pod)
		time.Sleep(maxQuarantine)
		b.list(pod)
		for range 3 {
			b.takeRetry(t, "a", "Started(c)", 4)
			b.settle("a", errInspect)
			b.requireNoRetry(t)
			b.list(pod)
		}
		b.takeRetry(t, "a", "Started(c)", 4)
		b.hang("a")
		time.Sleep(8*period - 1)
		b.list(pod)
		b.requireNoRetry(t)
	})
}

// In its quarantine a pod is not covered by the listings, and all others are.
func TestQuarantinedPodIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		sick, well := plegtest.Pod("sick", "c=running"), plegtest.Pod("well", "c=running")
		b.quarantined(t, 2, sick)
		b.list(sick, well)
		b.take(t, "well", "Started(c)")
		b.settle("well", nil)
		b.list(sick, well)
		b.requirePending(t, "sick")
		b.observe(stage.Observation{UID: "sick", At: at(b.lists).Add(1), Pod: sick})
		if at, ok := b.cache.touched["sick"]; ok {
			t.Errorf("touched at %v, though it has not been inspected", at)
		}
	})
}

// Between two listings that are far apart, one is asked for when a wait ends.
func TestListingIsAskedForWhenAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.quarantined(t, 3, plegtest.Pod("a", "c=running"))
		before := b.retries.Load()
		time.Sleep(2*period - 1)
		synctest.Wait()
		if got := b.retries.Load(); got != before {
			t.Errorf("asked for %d listings before the wait has ended", got-before)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := b.retries.Load(); got != before+1 {
			t.Errorf("asked for %d listings at the end of the wait, want 1", got-before)
		}
	})
}

func TestQuarantineIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		began := time.Now()
		b.quarantined(t, 3, plegtest.Pod("a", "c=running"))
		want := []pleg.Quarantined{{
			UID: "a", Namespace: "ns", Name: "name-a", Since: began, Hung: 3, NextTry: time.Now().Add(2 * period), Err: errInspect,
		}}
		if got := b.differ.Quarantined(); !slices.Equal(got, want) {
			t.Errorf("quarantined = %+v, want %+v", got, want)
		}
		gauge := func(want int) {
			t.Helper()
			text := fmt.Sprintf("# HELP pleg_quarantined_pods Pods whose last inspection hung; each further one waits longer than the one before.\n"+
				"# TYPE pleg_quarantined_pods gauge\npleg_quarantined_pods %d\n", want)
			if err := testutil.GatherAndCompare(b.metrics, strings.NewReader(text), "pleg_quarantined_pods"); err != nil {
				t.Error(err)
			}
		}
		gauge(1)
		b.list()
		b.poll()
		b.settle("a", nil)
		gauge(0)
		warns, infos := strings.Count(b.logged.String(), "level=WARN"), strings.Count(b.logged.String(), "level=INFO")
		if warns != 1 || infos != 1 || !strings.Contains(b.logged.String(), "podUID=a pod=ns/name-a age=2s nextTry=1s") {
			t.Errorf("logged %d warnings and %d infos, want one each:\n%s", warns, infos, &b.logged)
		}
	})
}

// A pod in quarantine is delivered uninspected all the same.
func TestHungInspectionsCountAsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDelivering(t, 2)
		pod := plegtest.Pod("a", "c=running")
		b.quarantined(t, 2, pod)
		c, ok := b.poll()
		if !ok || !c.Uninspected || plegtest.Words(c.Events...) != "Started(c)" {
			t.Fatalf("change %+v: %v, want the events uninspected", c, ok)
		}
		b.settle("a", nil)
		if got := b.differ.Quarantined(); len(got) != 1 {
			t.Errorf("quarantined %+v, want the pod still", got)
		}
		time.Sleep(maxQuarantine)
		b.list(pod)
		b.takeRetry(t, "a", "PodSync", 2)
		b.hang("a")
		if got := b.differ.Quarantined(); len(got) != 1 || got[0].Hung != 3 || !errors.Is(got[0].Err, errInspect) {
			t.Errorf("quarantined %+v, want the pod, hung 3 times", got)
		}
	})
}
