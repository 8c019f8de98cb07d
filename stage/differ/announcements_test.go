package differ_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage/differ"
)

// announceLate sends the CRI event of the container's exit, made before the newest
// listing, after the given time.
func (f *fixture) announceLate(after time.Duration) {
	time.Sleep(after)
	f.sendHint(-1, hint("a", "c=exited", "c=exited"))
}

var (
	runningPod = plegtest.Pod("a", "c=running")
	exitedPod  = plegtest.Pod("a", "c=exited")
)

// unannouncedCases begin with a pod whose container runs.
var unannouncedCases = map[string]struct {
	do   func(f *fixture)
	want float64
}{
	"no CRI event":      {func(f *fixture) { f.listWithStream(exitedPod) }, 1},
	"removed pod":       {func(f *fixture) { f.listWithStream() }, 2}, // died and removed
	"new pod":           {func(f *fixture) { f.listWithStream(runningPod, plegtest.Pod("b", "d=running /s=running")) }, 2},
	"no change":         {func(f *fixture) { f.listWithStream(runningPod) }, 0},
	"created container": {func(f *fixture) { f.listWithStream(plegtest.Pod("a", "c=running d=created")) }, 0},
	"no stream":         {func(f *fixture) { f.list(exitedPod) }, 0},
	"stream ended":      {func(f *fixture) { f.listAfterStreamEnded(exitedPod) }, 1},
	"stream ended, the next one announces it": {func(f *fixture) { f.listAfterStreamEnded(exitedPod); f.announceLate(4 * time.Second) }, 0},
	"announced 4 s later":                     {func(f *fixture) { f.listWithStream(exitedPod); f.announceLate(4 * time.Second) }, 0},
	"announced 6 s later":                     {func(f *fixture) { f.listWithStream(exitedPod); f.announceLate(6 * time.Second) }, 1},
	"announced by the removal": {func(f *fixture) {
		f.listWithStream(exitedPod)
		f.sendHint(-1, hint("a", "c=removed", "-"))
	}, 0},
	"announced 4 s before by an event without the pod": {func(f *fixture) {
		f.sendHint(1, hint("a", "c=exited", "-"))
		time.Sleep(4 * time.Second)
		f.listWithStream(exitedPod)
	}, 0},
	"announced 6 s before": {func(f *fixture) {
		f.sendHint(1, hint("a", "c=exited", "-"))
		time.Sleep(6 * time.Second)
		f.listWithStream(exitedPod)
	}, 1},
	"another container announced": {func(f *fixture) {
		f.sendHint(1, hint("a", "d=exited", "-"))
		f.listWithStream(exitedPod)
	}, 1},
	"announced with the pod": {func(f *fixture) {
		f.sendHint(1, hint("a", "c=exited", "c=exited"))
		f.settleAll(nil)
		f.listWithStream(exitedPod)
	}, 0},
	"announced with the pod, inspection fails": {func(f *fixture) {
		f.sendHint(1, hint("a", "c=exited", "c=exited"))
		f.settleAll(errInspect)
		f.listWithStream(exitedPod)
	}, 0},
	"listed three times because inspections fail": {func(f *fixture) {
		for range 3 {
			f.listWithStream(exitedPod)
			f.settleAll(errInspect)
			time.Sleep(6 * time.Second)
		}
	}, 1},
	"listed during an inspection": {func(f *fixture) {
		f.sendHint(1, hint("a", "d=running", "c=running d=running"))
		f.listWithStream(plegtest.Pod("a", "c=exited d=running"))
	}, 1},
}

func TestUnannouncedChangesAreCounted(t *testing.T) {
	for name, tc := range unannouncedCases {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(runningPod)
			tc.do(f)
			f.settleAll(nil)
			time.Sleep(time.Minute)
			f.list()
			if got := f.counter(t, "pleg_missed_events_total"); got != tc.want {
				t.Errorf("unannounced changes = %v, want %v", got, tc.want)
			}
		})
	}
}

// requireReports checks what the differ reported to the lister since the last
// check.
func (f *fixture) requireReports(t *testing.T, when string, unannounced int, announced ...bool) {
	t.Helper()
	synctest.Wait()
	if f.lister.unannounced != unannounced || !slices.Equal(f.lister.announced, announced) {
		t.Errorf("%s: reported %d unannounced changes and announced listings %v, want %d and %v",
			when, f.lister.unannounced, f.lister.announced, unannounced, announced)
	}
	f.lister.unannounced, f.lister.announced = 0, nil
}

// repeatList sends a listing of a pod each second.
func (f *fixture) repeatList(times int, pod *pleg.Pod) {
	for range times {
		f.listWithStream(pod)
		f.settleAll(nil)
		time.Sleep(time.Second)
	}
}

func TestAnnouncementsAreReportedToTheLister(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(attempts(0))
		f.repeatList(2, attempts(0))
		f.requireReports(t, "nothing changed", 0, false, false)
		f.repeatList(6, attempts(1))
		f.requireReports(t, "within the time for announcements", 0)
		f.repeatList(1, attempts(1))
		f.requireReports(t, "after the time for announcements", 3, false) // died, removed, and the next attempt started
		f.sendHint(1, hint("a", "x=running", "-"))
		f.repeatList(2, attempts(1))
		f.requireReports(t, "after a CRI event of another container", 0, false, false)
		f.repeatList(7, attempts(2))
		f.requireReports(t, "another unannounced change", 3, false)
	})
}

// A stream is worth something once lists and events have shown the same change.
func TestConfirmedAnnouncements(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(f *fixture)
		want bool
	}{
		"nothing":                   {func(*fixture) {}, false},
		"an event without a change": {func(f *fixture) { f.sendHint(1, hint("a", "c=running", "c=running")) }, false},
		"an event with a change":    {func(f *fixture) { f.sendHint(1, hint("a", "c=exited", "c=exited")) }, true},
		"and then one without": {func(f *fixture) {
			f.sendHint(1, hint("a", "c=exited", "c=exited"))
			f.sendHint(2, hint("a", "c=exited", "c=exited"))
		}, true},
		"an event without the pod":    {func(f *fixture) { f.sendHint(1, hint("a", "c=exited", "-")) }, true},
		"of another container":        {func(f *fixture) { f.sendHint(1, hint("a", "d=exited", "-")); f.list(exitedPod) }, false},
		"an event after the list":     {func(f *fixture) { f.listWithStream(exitedPod); f.sendHint(-1, hint("a", "c=exited", "-")) }, true},
		"an event, a single-pod list": {func(f *fixture) { f.sendHint(1, hint("a", "c=exited", "-")); f.relisted(2, exitedPod) }, true},
		"a single-pod list":           {func(f *fixture) { f.relisted(2, exitedPod) }, false},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(runningPod)
			tc.do(f)
			f.settleAll(nil)
			pod := exitedPod
			if name == "nothing" || name == "an event without a change" {
				pod = runningPod
			}
			f.listWithStream(pod)
			f.settleAll(nil)
			f.requireReports(t, "the next list", 0, tc.want)
			if want := at(f.lists).Sub(at(f.lists - 1)); f.lister.covered != want {
				t.Errorf("the report covers %v, want %v", f.lister.covered, want)
			}
			f.listWithStream(pod)
			f.requireReports(t, "the list after it", 0, false)
		})
	}
}

// Dead pods are listed until they are gone, so the stream need not announce it.
func TestUnannouncedRemovalOfADeadPodIsNoReasonToDoubt(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=exited /s=exited"))
		f.listWithStream()
		f.settleAll(nil)
		if n := f.lister.relists.Load(); n != 0 {
			t.Errorf("%d relists requested, want none", n)
		}
		time.Sleep(time.Minute)
		f.list()
		f.requireReports(t, "a minute later", 0, false)
		if got := f.counter(t, "pleg_missed_events_total"); got != 2 {
			t.Errorf("unannounced changes = %v, want both removals", got)
		}
	})
}

func TestChangesThatAreNotCountedAgainstTheStream(t *testing.T) {
	for name, do := range map[string]func(f *fixture){
		"no stream":       func(f *fixture) { f.list(exitedPod) },
		"stream ended":    func(f *fixture) { f.listAfterStreamEnded(exitedPod) },
		"announced later": func(f *fixture) { f.listWithStream(exitedPod); f.sendHint(-1, hint("a", "c=exited", "-")) },
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(runningPod)
			do(f)
			f.settleAll(nil)
			time.Sleep(time.Minute)
			f.lister.announced = nil
			f.repeatList(3, exitedPod)
			f.requireReports(t, "at the end", 0, name == "announced later", false, false)
		})
	}
}

func TestListingsWithoutAStreamAreNotReported(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(attempts(0))
		f.sendHint(1, hint("a", "x=running", "-"))
		for range 10 {
			f.list(attempts(0))
			f.listAfterStreamEnded(attempts(0))
			f.settleAll(nil)
		}
		f.requireReports(t, "listings without a stream", 0)
	})
}

func TestUnannouncedChangeRequestsARelist(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(attempts(0))
		f.listWithStream(attempts(0))
		if n := f.lister.relists.Load(); n != 0 {
			t.Errorf("%d relists requested after a listing without a change, want none", n)
		}
		f.listWithStream(attempts(1))
		if n := f.lister.relists.Load(); n != 1 {
			t.Errorf("%d relists requested, want 1", n)
		}
	})
}

// A runtime that announces pods which do not exist must not fill the memory.
func TestNewPodsFromCRIEventsAreBounded(t *testing.T) {
	const bound = 4096
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle()
		changes := 0
		announce := func(n int) {
			for i := range n {
				f.sendHint(1, withStatus(hint(pleg.PodUID(fmt.Sprint("p-", changes, "-", i)), "/s=running", "/s=running")))
				if _, ok := f.nextChange(); ok {
					changes++
				}
			}
		}
		announce(bound)
		if n := f.lister.relists.Load(); changes != bound || n != 0 {
			t.Errorf("%d changes and %d relists requested, want %d and none", changes, n, bound)
		}
		announce(10)
		if n := f.lister.relists.Load(); changes != bound || n == 0 {
			t.Errorf("%d changes and %d relists requested, want %d and some", changes, n, bound)
		}
		f.list()
		announce(1)
		if changes != bound+1 {
			t.Errorf("after a listing %d changes, want one more than %d", changes, bound)
		}
	})
}

// attempts returns a pod that has these attempts of one container.
func attempts(numbers ...uint32) *pleg.Pod {
	p := plegtest.Pod("a", "")
	for _, n := range numbers {
		p.Containers = append(p.Containers, &pleg.Container{
			ID: pleg.ContainerID('a' + rune(n)), Name: "main", Attempt: n, State: pleg.StateRunning,
		})
	}
	return p
}

func TestSkippedAttempts(t *testing.T) {
	other := attempts(7)
	other.Containers[0].Name = "other"
	for name, tc := range map[string]struct {
		old, cur *pleg.Pod
		want     int
	}{
		"new pod":                      {nil, attempts(5), 0},
		"removed pod":                  {attempts(5), nil, 0},
		"unchanged":                    {attempts(5), attempts(5), 0},
		"next attempt":                 {attempts(5), attempts(6, 5), 0},
		"one skipped":                  {attempts(5), attempts(7, 5), 1},
		"three skipped, old removed":   {attempts(5), attempts(9), 3},
		"two new, one between":         {attempts(5), attempts(8, 6), 1},
		"two new, none between":        {attempts(5), attempts(7, 6, 5), 0},
		"older attempt is back":        {attempts(5), attempts(5, 2), 0},
		"container with another name":  {attempts(5), other, 0},
		"two known attempts, the next": {attempts(5, 3), attempts(6, 5), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := differ.SkippedAttempts(tc.old, tc.cur); got != tc.want {
				t.Errorf("skipped = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestSkippedAttemptsAreCountedOnce(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(attempts(0))
		for range 3 {
			f.list(attempts(3))
			f.settleAll(errInspect)
		}
		f.listAndSettle(attempts(3))
		if got := f.counter(t, "pleg_missed_attempts_total"); got != 2 {
			t.Errorf("missed attempts = %v, want 2", got)
		}
	})
}
