package verdict_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/verdict"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestAgesStayWithTheTrouble requires that a trouble without a time of its own begins when it is
// first seen, no matter who asks later, and begins again after the trouble was over.
func TestAgesStayWithTheTrouble(t *testing.T) {
	var ages verdict.Ages
	at := func(second int, change func(*pleg.Status)) nodestate.Since {
		s := pleg.Status{At: noon.Add(time.Duration(second) * time.Second), Healthy: true, Relist: pleg.RelistStatus{Period: time.Second}}
		change(&s)
		ages.Complete(&s)
		return nodestate.Of(s.Details).Since
	}
	well := func(*pleg.Status) {}
	for name, test := range map[string]struct {
		change func(*pleg.Status)
		of     func(nodestate.Since) time.Time
	}{
		"unhealthy":        {func(s *pleg.Status) { s.Healthy = false }, func(s nodestate.Since) time.Time { return s.Unhealthy }},
		"a fallback":       {func(s *pleg.Status) { s.Degraded = errBroken }, func(s nodestate.Since) time.Time { return s.Degraded }},
		"slow lists":       {func(s *pleg.Status) { s.Relist.Took = 2 * time.Second }, func(s nodestate.Since) time.Time { return s.Slow }},
		"slow inspections": {func(s *pleg.Status) { s.InspectionTook = time.Second }, func(s nodestate.Since) time.Time { return s.Slow }},
	} {
		t.Run(name, func(t *testing.T) {
			for second, since := range map[int]int{10: 10, 11: 10, 500: 10} {
				at(0, well)
				at(10, test.change)
				if got := test.of(at(second, test.change)); !got.Equal(noon.Add(time.Duration(since) * time.Second)) {
					t.Errorf("after %d s: since %v, want second %d", second, got, since)
				}
			}
			if got := at(600, well); got != (nodestate.Since{}) {
				t.Errorf("after the end: %+v", got)
			}
			if got := test.of(at(700, test.change)); !got.Equal(noon.Add(700 * time.Second)) {
				t.Errorf("the second time: since %v", got)
			}
		})
	}
}

// TestSlowListsAreOneTrouble requires that a runtime is slow for as long as one list of each minute
// is slow. A list that hung does not make the later ones slow.
func TestSlowListsAreOneTrouble(t *testing.T) {
	var ages verdict.Ages
	for _, test := range []struct {
		second        int // at which the list ends
		took, longest time.Duration
		slowSince     int // -1: it is not slow
	}{
		{0, 6 * time.Second, 0, 0}, // it hung
		{1, time.Second / 10, time.Second / 10, -1},
		{10, 1200 * time.Millisecond, 1200 * time.Millisecond, 10},
		{12, time.Second / 10, 1200 * time.Millisecond, 10},
		{20, 4 * time.Second, 4 * time.Second, 10},
		{30, 2 * time.Second, 4 * time.Second, 10},
		{79, time.Second / 10, 4 * time.Second, 10},
		{80, time.Second / 10, 2 * time.Second, 10},
		{91, time.Second / 5, time.Second / 5, -1},
		{130, 5 * time.Second, time.Second / 5, 130},
		{131, time.Second / 10, time.Second / 5, -1},
		{140, 4 * time.Second, 4 * time.Second, 140},
		{150, 7 * time.Second, 7 * time.Second, 140}, // less than twice as long: it did not hang
	} {
		s := pleg.Status{At: noon.Add(time.Duration(test.second) * time.Second), Healthy: true}
		s.Relist = pleg.RelistStatus{Period: time.Second, Success: s.At.Add(-test.took), Took: test.took}
		ages.Complete(&s)
		var since time.Time
		if test.slowSince >= 0 {
			since = noon.Add(time.Duration(test.slowSince) * time.Second)
		}
		if s.Relist.Longest != test.longest || !nodestate.Of(s.Details).Since.Slow.Equal(since) {
			t.Errorf("second %d: the longest list took %v, slow since %v; want %v, %v", test.second, s.Relist.Longest, nodestate.Of(s.Details).Since.Slow, test.longest, since)
		}
	}
	var after pleg.Status
	for _, second := range []int{200, 259, 260} { // no other list ends before the last of them
		after = pleg.Status{At: noon.Add(time.Duration(second) * time.Second), Healthy: true}
		after.Relist = pleg.RelistStatus{Period: time.Minute, Success: noon.Add(196 * time.Second), Took: 4 * time.Second}
		if second == 260 {
			after.Relist.Success, after.Relist.Took = after.At.Add(-time.Second), time.Second
		}
		ages.Complete(&after)
	}
	if after.Relist.Longest != time.Second {
		t.Errorf("a minute after the end of a slow list: the longest took %v, want that of the last", after.Relist.Longest)
	}
}

// TestAnsweringAgain requires after each outage of lists a second in which inspections do not count.
func TestAnsweringAgain(t *testing.T) {
	var ages verdict.Ages
	for second, want := range []int{0, 0, 0, 4, 4, 4, 4, 8, 8} {
		s := pleg.Status{At: noon.Add(time.Duration(second) * time.Second), Relist: pleg.RelistStatus{Period: time.Second}}
		if second == 2 || second == 5 || second == 6 {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = s.At.Add(-time.Second), 1, errRefused
		}
		got := ages.Answering(s)
		if since := noon.Add(time.Duration(want) * time.Second); want == 0 && !got.IsZero() || want > 0 && !got.Equal(since) {
			t.Errorf("second %d: answering since %v, want second %d", second, got, want)
		}
	}
}

// TestWatchLogsFewPods watches pods of one trouble: ten of them are logged, and none that has it only now.
func TestWatchLogsFewPods(t *testing.T) {
	name := func(n int) string { return fmt.Sprintf("web-%02d", (n+6)%12) } // three of the same age are in this order
	for of, test := range map[string]struct{ long, now, logged int }{"many": {12, 0, 10}, "one of them now": {2, 1, 2}} {
		kit.Bubble(t, of, func(t *testing.T) {
			var logged kit.Log
			began := time.Now().Add(-time.Minute)
			status := func() pleg.Status {
				s := pleg.Status{At: time.Now(), Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Period: time.Second, Pods: 99}}
				for n := range test.long + test.now {
					f := pleg.Failed{UID: pleg.PodUID(fmt.Sprint("u", n)), Namespace: "shop", Name: name(n), Since: began.Add(time.Duration(n/3) * time.Second), Err: errBroken}
					switch age := verdict.DefaultLimits.Warning; {
					case n >= test.long:
						f.Since = s.At.Add(1 - age)
					case test.now > 0 && n > 0:
						f.Since = s.At.Add(-age)
					}
					s.Failed = append(s.Failed, f)
				}
				return s
			}
			kit.Run(t, func(ctx context.Context) error { return verdict.Watch(ctx, status, logged.Logger()) })
			time.Sleep(time.Minute)
			synctest.Wait()
			logged.RequireLines(t, test.logged, "trouble")
			for n := range test.long + test.now { // those that have it for longest
				want := 0
				if n < test.logged {
					want = 1
				}
				logged.RequireLines(t, want, fmt.Sprintf(`what="shop/%s `, name(n)))
			}
		})
	}
}

// TestWatchLogsBeginAndEnd requires one line when a trouble begins and one when it ends.
func TestWatchLogsBeginAndEnd(t *testing.T) {
	for name, test := range map[string]struct {
		trouble func(*pleg.Status, time.Duration) // with its age
		begins  time.Duration                     // 0: is not logged
		cause   verdict.Cause
		advice  string
	}{
		"a list hangs": {func(s *pleg.Status, age time.Duration) { s.Relist.Started = s.At.Add(-age) }, 5 * time.Second, verdict.RuntimeHangs, "find out what the runtime waits for, and restart it"},
		"the runtime is stopped": {func(s *pleg.Status, age time.Duration) {
			s.Relist.Failing, s.Relist.Failures, s.Relist.Err = s.At.Add(-age), 1+int(age/time.Second), errRefused
		}, time.Second, verdict.RuntimeStopped, "start the runtime and read its log"},
		"a fallback": {func(s *pleg.Status, age time.Duration) {
			s.Degraded = errors.New("no socket")
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Degraded = s.At.Add(-age) })
		}, time.Second, verdict.Fallback, "read the log of the runtime at this time"},
		"an inspection that others overtook": {func(s *pleg.Status, age time.Duration) {
			s.Overdue = []pleg.Inspection{{UID: "u", Name: "web-0", Started: s.At.Add(-age), Hung: age >= 5*time.Second}}
		}, 5 * time.Second, verdict.HungContainer, "find out what PodStatus of this pod waits for"},
		"no inspection returns, now of these pods, now of those": {func(s *pleg.Status, age time.Duration) {
			for n := range 3 {
				s.Overdue = append(s.Overdue, pleg.Inspection{UID: pleg.PodUID(fmt.Sprint("u", n+int(age/time.Minute))), Started: s.At.Add(-age)})
			}
		}, 5 * time.Second, verdict.RuntimeSlow, "find out what the runtime waits for"},
		"an inspection beside one that takes as long as others of a slow runtime": {func(s *pleg.Status, age time.Duration) {
			s.InspectionTook, s.Overdue = time.Minute, []pleg.Inspection{{UID: "v", Name: "web-1", Started: s.At.Add(-10 * time.Second)}}
			s.Quarantined = []pleg.Quarantined{{UID: "u", Name: "web-0", Since: s.At.Add(-age), Hung: 1}}
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Since.Slow = s.At })
		}, 3 * time.Second, verdict.HungContainer, "find out what PodStatus of this pod waits for"},
		"a client that may read soon": {func(s *pleg.Status, age time.Duration) {
			nodestate.Change(&s.Details, func(n *nodestate.State) { n.Unread = []nodestate.Unread{{Since: s.At.Add(-age), Bytes: 9}} })
		}, 5 * time.Second, verdict.ClientNotReading, "read the log of the runtime at this time"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			var logged kit.Log
			var began atomic.Pointer[time.Time]
			status := func() pleg.Status {
				s := pleg.Status{At: time.Now().Add(time.Microsecond), Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Period: time.Second, Pods: 3}}
				if from := began.Load(); from != nil {
					test.trouble(&s, s.At.Sub(*from))
				}
				return s
			}
			kit.Run(t, func(ctx context.Context) error { return verdict.Watch(ctx, status, logged.Logger()) })
			sleep := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
			sleep(10 * time.Second)
			logged.RequireLines(t, 0, "trouble")
			from := time.Now()
			began.Store(&from)
			sleep(test.begins - time.Second)
			logged.RequireLines(t, 0, "trouble")
			sleep(time.Second)
			logged.RequireLines(t, 1, "trouble begins")
			sleep(10*time.Minute - time.Second)
			logged.RequireLines(t, 1, "trouble begins")
			began.Store(nil)
			sleep(10 * time.Minute)
			logged.RequireLines(t, 1, "trouble ended")
			if text := logged.String(); !strings.Contains(text, "after=10m") || strings.Count(text, string(test.cause)) < 2 || strings.Count(text, "\n") != 2 {
				t.Errorf("logged %s", text)
			}
			quoted := string(test.cause)
			if strings.Contains(quoted, " ") {
				quoted = strconv.Quote(quoted)
			}
			severity := "problem"
			if test.cause == verdict.ClientNotReading {
				severity = "warning"
			}
			logged.RequireLines(t, 1, fmt.Sprintf(`level=WARN msg="trouble begins" severity=%s cause=%s since=%s what="`, severity, quoted, from.Format("2006-01-02T15:04:05.000Z07:00")))
			logged.RequireLines(t, 1, `do="`+test.advice+`"`)
			logged.RequireLines(t, 1, fmt.Sprintf(`level=INFO msg="trouble ended" cause=%s what="`, quoted))
			logged.RequireLines(t, 1, fmt.Sprint(" after=", 10*time.Minute+test.begins, "\n")) // rounded
		})
	}
}

// TestWatchNamesEachPod watches two pods that hang one after the other, and recover in this order.
func TestWatchNamesEachPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged kit.Log
		began := time.Now()
		status := func() pleg.Status {
			s := pleg.Status{At: time.Now(), Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Period: time.Second, Pods: 9}}
			for n, name := range []string{"web-0", "web-1"} {
				from := began.Add(time.Duration(n) * 10 * time.Second)
				if age := s.At.Sub(from); age >= 0 && age < 30*time.Second {
					s.Overdue = append(s.Overdue, pleg.Inspection{UID: pleg.PodUID(name), Namespace: "shop", Name: name, Started: from, Hung: true})
				}
			}
			return s
		}
		kit.Run(t, func(ctx context.Context) error { return verdict.Watch(ctx, status, logged.Logger()) })
		time.Sleep(20 * time.Second)
		synctest.Wait()
		logged.RequireLines(t, 2, "trouble begins") // while the first lasts
		time.Sleep(40 * time.Second)
		synctest.Wait()
		for _, pod := range []string{"web-0", "web-1"} {
			for _, line := range []string{`trouble begins" .*what="shop/` + pod + ` hangs since`, `trouble ended" .*what="shop/` + pod + ` hangs since .* after=30`} {
				if n := len(regexp.MustCompile(line).FindAllString(logged.String(), -1)); n != 1 {
					t.Errorf("%d lines of %s in\n%s", n, line, logged.String())
				}
			}
		}
		logged.RequireLines(t, 4, "trouble")
	})
}

// TestWatchNamesThePodsOfEachTrouble watches a pod that hangs beside two that fail.
func TestWatchNamesThePodsOfEachTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged kit.Log
		began := time.Now()
		status := func() pleg.Status {
			return pleg.Status{
				At: time.Now(), Healthy: true, Relist: pleg.RelistStatus{Success: time.Now(), Period: time.Second, Pods: 9},
				Quarantined: []pleg.Quarantined{{UID: "web-0", Name: "web-0", Since: began, Hung: 1}},
				Failed:      []pleg.Failed{{UID: "web-1", Name: "web-1", Since: began, Err: errBroken}, {UID: "web-2", Name: "web-2", Since: began, Err: errBroken}},
			}
		}
		kit.Run(t, func(ctx context.Context) error { return verdict.Watch(ctx, status, logged.Logger()) })
		time.Sleep(time.Minute)
		synctest.Wait()
		for n := range 3 {
			logged.RequireLines(t, 1, fmt.Sprintf(`what="/web-%d`, n))
		}
		logged.RequireLines(t, 3, "trouble begins")
	})
}

// TestTookIsTheMedianOfTheLastMinute uses a slow runtime that recovers.
func TestTookIsTheMedianOfTheLastMinute(t *testing.T) {
	var r verdict.Recent
	now := time.Unix(1000, 0)
	inspect := func(pods string, took, want time.Duration) {
		t.Helper()
		for _, pod := range pods {
			r.Ended(pleg.PodUID(pod), took, now)
		}
		if got := r.Took(now, time.Time{}); got != want {
			t.Errorf("after inspections of %q with %v: %v, want %v", pods, took, got, want)
		}
	}
	inspect("", 0, 0)
	inspect("aaaaaa", 2*time.Second, 0) // one slow pod
	inspect("b", 2*time.Second, 0)
	inspect("c", 2*time.Second, 2*time.Second)
	inspect("de", 2*time.Second, 2*time.Second)
	inspect("fgh", 10*time.Millisecond, 2*time.Second)
	inspect("i", 10*time.Millisecond, 2*time.Second) // half of them
	inspect("j", 10*time.Millisecond, 10*time.Millisecond)
	inspect("lmn", 2*time.Second, 10*time.Millisecond)
	inspect("o", 2*time.Second, 2*time.Second) // half of the last eight
	now = now.Add(time.Minute - 1)
	inspect("", 0, 2*time.Second)
	now = now.Add(1)
	inspect("", 0, 0)
	inspect("k", 2*time.Second, 0) // the events before are too old
	inspect("pqr", 3*time.Second, 3*time.Second)
	if got := r.Took(now, now); got != 3*time.Second {
		t.Errorf("since the last inspections: %v, want 3s", got)
	}
	if got := r.Took(now, now.Add(1)); got != 0 {
		t.Errorf("since a time after the last inspections: %v, want 0", got)
	}
}
