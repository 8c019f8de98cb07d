package differ_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// The CRI events of a container that starts and exits during an inspection of its
// pod become one change each.
func TestStepsDuringAnInspectionAreChanges(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "/s=running"))
		f.requireChange(t, "a", "Started(/s)")
		f.sendHint(1, withStatus(hint("a", "c=created", "c=created /s=running")))
		f.sendHint(2, withStatus(hint("a", "c=running", "c=running /s=running")))
		f.sendHint(3, withStatus(hint("a", "c=exited", "c=exited /s=running")))
		f.sendHint(4, withStatus(hint("a", "c=removed", "/s=running")))
		f.requireNoChange(t)
		if len(f.cache.touched) > 0 {
			t.Errorf("touched %v during the inspection", f.cache.touched)
		}
		for n, words := range []string{"Created(c)", "Started(c)", "Died(c)", "Removed(c)"} {
			f.settle("a", nil)
			if c, want := f.requireChange(t, "a", words), at(1).Add(time.Duration(n+1)*time.Second/10); !c.At.Equal(want) {
				t.Errorf("%s at %v, want the time of its event %v", words, c.At, want)
			}
		}
		f.settle("a", nil)
		f.requireNoChange(t)
	})
}

// A reinspection that is requested of a pod which has come back is made, although the step
// that the pod was gone comes first.
func TestReinspectionOutlivesTheStepOfAGonePod(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "/s=running"))
		f.requireChange(t, "a", "Started(/s)")
		f.sendHint(1, hint("a", "/s=removed", ""))
		f.sendHint(2, withStatus(hint("a", "/t=running", "/t=running")))
		f.requestReinspect("a")
		f.settle("a", nil)
		f.requireChange(t, "a", "Died(/s) Removed(/s)")
		f.settle("a", nil)
		if c := f.requireChange(t, "a", "Started(/t)"); !c.Reinspect {
			t.Error("the request is forgotten")
		}
	})
}

// A listing during an inspection neither hides an earlier step nor becomes one.
func TestListingAfterSteps(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "/s=running"))
		f.requireChange(t, "a", "Started(/s)")
		f.sendHint(1, withStatus(hint("a", "c=running", "c=running /s=running")))
		f.list(plegtest.Pod("a", "d=running /s=running"))
		f.list(plegtest.Pod("a", "d=exited /s=running"))
		f.settle("a", nil)
		f.requireChange(t, "a", "Started(c)")
		f.settle("a", nil)
		f.requireChange(t, "a", "Died(c) Removed(c) Died(d)")
	})
}

// A failed inspection loses no step of a CRI event. Steps with the status of the whole
// pod are changes at once, others come with the next change.
func TestStepsSurviveAFailure(t *testing.T) {
	start := func(words string) *pleg.Hint { return hint("a", "c=running", "c=running "+words) }
	exit := func(words string) *pleg.Hint { return hint("a", "c=exited", "c=exited "+words) }
	remove := func(words string) *pleg.Hint { return hint("a", "c=removed", words) }
	const s = "/s=running"
	for name, tc := range map[string]struct {
		hints []*pleg.Hint
		want  []string // the changes after the failure
		list  bool     // the pod is listed before those
	}{
		"all with a status": {
			hints: []*pleg.Hint{withStatus(start(s)), withStatus(exit(s)), withStatus(remove(s))},
			want:  []string{"Started(c) Started(/s)", "Died(c)", "Removed(c)"},
		},
		"the start without": {
			hints: []*pleg.Hint{start(s), withStatus(exit(s)), withStatus(remove(s))},
			want:  []string{"Started(c) Started(/s) Died(c)", "Removed(c)"},
		},
		"the end without": {
			hints: []*pleg.Hint{withStatus(start(s)), exit(s), remove(s)},
			want:  []string{"Started(c) Started(/s)", "Died(c)", "Removed(c)"},
		},
		"all without": {
			hints: []*pleg.Hint{start(s), exit(s), remove(s)},
			want:  []string{"Started(c) Started(/s) Died(c) Removed(c)"},
			list:  true,
		},
		"then the pod is gone": {
			hints: []*pleg.Hint{start(s), exit(s), remove(s), hint("a", "/s=removed", "")},
			want:  []string{"Started(c) Started(/s) Died(c) Removed(c) Died(/s) Removed(/s)"},
		},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.list(plegtest.Pod("a", s))
			f.requireChange(t, "a", "Started(/s)")
			for n, h := range tc.hints {
				f.sendHint(n+1, h)
			}
			f.settle("a", errInspect)
			if tc.list {
				f.requireNoChange(t)
				f.list(plegtest.Pod("a", s))
			}
			for _, words := range tc.want {
				f.requireChange(t, "a", words)
				f.settle("a", nil)
			}
			f.requireNoChange(t)
		})
	}
}

// A retry that fails keeps the steps that came with it.
func TestStepsSurviveEveryFailure(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "/s=running"))
		f.sendHint(1, hint("a", "c=running", "c=running /s=running"))
		f.requireChange(t, "a", "Started(c)")
		f.settle("a", errInspect)
		f.sendHint(2, hint("a", "c=exited", "c=exited /s=running"))
		f.requireChange(t, "a", "Started(c) Died(c)")
		f.settle("a", errInspect)
		f.list(plegtest.Pod("a", "/s=running"))
		f.requireChange(t, "a", "Started(c) Died(c) Removed(c)")
		f.settle("a", errInspect)
		f.sendHint(1, withStatus(hint("a", "d=running", "d=running /s=running")))
		f.requireChange(t, "a", "Started(c) Died(c) Removed(c) Started(d)")
		f.settle("a", nil)
		f.requireNoChange(t)
	})
}

// Of two events that show the same, the one with the status of the pod counts: it needs no
// inspection.
func TestStepWithAStatusReplacesOneWithout(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running /s=running"))
		f.requestReinspect("a")
		f.list(plegtest.Pod("a", "c=running /s=running"))
		f.requireChange(t, "a", "PodSync")
		f.sendHint(1, hint("a", "c=exited", "c=exited /s=running"))
		f.sendHint(2, withStatus(hint("a", "c=exited", "c=exited /s=running")))
		f.sendHint(3, hint("a", "d=running", "c=exited d=running /s=running"))
		f.settle("a", errInspect)
		if c, ok := f.nextChange(); !ok || !c.known || plegtest.Words(c.Events...) != "Died(c)" {
			t.Errorf("change %+v: %v, want the exit without an inspection", c, ok)
		}
	})
}

func TestStepsAreBounded(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "/s=running"))
		f.requireChange(t, "a", "Started(/s)")
		const containers = 100
		words := "/s=running"
		for n := range containers {
			words = fmt.Sprintf("c%d=running %s", n, words)
			f.sendHint(n+1, hint("a", fmt.Sprintf("c%d=running", n), words))
		}
		changes, started := 0, 0
		for {
			f.settle("a", nil)
			c, ok := f.nextChange()
			if !ok {
				break
			}
			changes++
			started += len(c.Events)
		}
		if changes > 66 || started != containers {
			t.Errorf("%d changes have %d events, want at most 66 with all %d", changes, started, containers)
		}
		if got := f.counter(t, "pleg_skipped_events_total"); got != 0 {
			t.Errorf("skipped events = %v, want none", got)
		}
	})
}

// What too many steps hide is counted.
func TestSkippedStepsAreCounted(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "/s=running"))
		f.requireChange(t, "a", "Started(/s)")
		const lives = 50
		for n := range lives {
			c := fmt.Sprint("c", n)
			f.sendHint(4*n+1, hint("a", c+"=running", c+"=running /s=running"))
			f.sendHint(4*n+2, hint("a", c+"=running", c+"=running /s=running")) // repeated
			f.sendHint(4*n+3, hint("a", c+"=exited", c+"=exited /s=running"))
			f.sendHint(4*n+4, hint("a", c+"=removed", "/s=running"))
		}
		f.settle("a", nil)
		told := 0
		for {
			c, ok := f.nextChange()
			if !ok {
				break
			}
			told += len(c.Events)
			f.settle("a", nil)
		}
		if skipped := int(f.counter(t, "pleg_skipped_events_total")); told == 3*lives || told+skipped != 3*lives {
			t.Errorf("%d events and %d skipped, want %d together", told, skipped, 3*lives)
		}
	})
}

// A container may have exited by the time its start is announced, and the end may be
// announced first: then its status shows that it has run.
func TestStartAnnouncedAfterTheEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		before string
		do     func(f *fixture)
		want   []string
	}{
		"new": {"/s=running", func(f *fixture) {
			f.sendHint(1, withStatus(hint("a", "c=running", "c=exited /s=running")))
		}, []string{"Started(c)", "Died(c)"}},
		"created": {"c=created /s=running", func(f *fixture) {
			f.sendHint(1, withStatus(hint("a", "c=running", "c=exited /s=running")))
		}, []string{"Started(c)", "Died(c)"}},
		"known to run": {"c=running /s=running", func(f *fixture) {
			f.sendHint(1, withStatus(hint("a", "c=running", "c=exited /s=running")))
		}, []string{"Died(c)"}},
		"known to have exited": {"c=exited /s=running", func(f *fixture) {
			f.sendHint(1, withStatus(hint("a", "c=running", "c=exited /s=running")))
		}, nil},
		"after the end": {"c=created /s=running", func(f *fixture) {
			f.sendHint(1, hasRun(hint("a", "c=exited", "c=exited /s=running")))
			f.sendHint(2, hasRun(hint("a", "c=running", "c=exited /s=running")))
		}, []string{"Started(c)", "Died(c)"}},
		"never": {"/s=running", func(f *fixture) {
			f.sendHint(1, hasRun(hint("a", "c=exited", "c=exited /s=running")))
		}, []string{"Started(c)", "Died(c)"}},
		"never, and it did not run": {"c=created /s=running", func(f *fixture) {
			f.sendHint(1, withStatus(hint("a", "c=exited", "c=exited /s=running")))
		}, []string{"Died(c)"}},
		"never, and a list did not show its state": {"c=unknown /s=running", func(f *fixture) {
			f.sendHint(1, hasRun(hint("a", "c=exited", "c=exited /s=running")))
		}, []string{"Died(c)"}},
		"before the end": {"c=running /s=running", func(f *fixture) {
			f.sendHint(1, hasRun(hint("a", "c=exited", "c=exited /s=running")))
		}, []string{"Died(c)"}},
		"without the pod, then listed": {"/s=running", func(f *fixture) {
			f.sendHint(1, hint("a", "c=running", "-"))
			f.list(plegtest.Pod("a", "c=exited /s=running"))
		}, []string{"Started(c)", "Died(c)"}},
		"without the pod, then listed alone": {"/s=running", func(f *fixture) {
			f.sendHint(1, hint("a", "c=running", "-"))
			f.relisted(2, plegtest.Pod("a", "c=exited /s=running"))
		}, []string{"Started(c)", "Died(c)"}},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(plegtest.Pod("a", tc.before))
			tc.do(f)
			for _, words := range tc.want {
				f.requireChange(t, "a", words)
				f.settle("a", nil)
			}
			f.requireNoChange(t)
		})
	}
}

func TestPodRemovedByACRIEventStaysGone(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "/s=exited"))
		f.sendHint(5, hint("a", "/s=removed", ""))
		f.requireKnownChange(t, "a", "Removed(/s)")
		f.settle("a", nil)
		// A listing that began before the CRI event still has the pod. One that
		// began a moment later still has its sandbox.
		f.listings <- stage.Listing{At: at(1).Add(time.Second / 10), Pods: []*pleg.Pod{plegtest.Pod("a", "t=running")}}
		f.list(plegtest.Pod("a", "/s=exited"))
		f.requireNoChange(t)
		f.list(plegtest.Pod("a", "/t=running"))
		f.requireChange(t, "a", "Started(/t)")
	})
}

// A runtime may list a removed container for some milliseconds. An event that was wrong hides
// it for no longer than ten seconds.
func TestRemovedContainerIsIgnoredForTenSeconds(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		pod := plegtest.Pod("a", "c=exited d=running")
		f.listAndSettle(pod)
		f.sendHint(1, hint("a", "c=removed", "d=running"))
		f.requireChange(t, "a", "Removed(c)")
		f.settle("a", nil)
		for range 10 {
			f.list(pod)
			f.requireNoChange(t)
			time.Sleep(time.Second)
		}
		f.list(pod)
		f.requireChange(t, "a", "Died(c)")
	})
}

// A removal counts although a list that began after the event still showed the container.
func TestLateRemovalCounts(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=exited d=running"))
		f.sendHint(-1, hint("a", "c=removed", "d=running"))
		f.settle(f.requireChange(t, "a", "Removed(c)").UID, nil)
		f.list(plegtest.Pod("a", "c=exited d=running"))
		f.requireNoChange(t)
	})
}

func TestSinglePodRelist(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running"))
		now := at(1).Add(time.Second / 10)
		f.sendObservation(stage.Observation{UID: "a", At: now, Pod: plegtest.Pod("a", "c=exited")})
		f.requireChange(t, "a", "Died(c)")
		f.sendObservation(stage.Observation{UID: "b", At: now})
		f.requireKnownChange(t, "b", "Died(d) Removed(d)")
		f.sendObservation(stage.Observation{UID: "x", At: now})
		f.requireNoChange(t)
		if got := f.cache.touched["x"]; !got.Equal(now) || len(f.cache.touched) != 1 {
			t.Errorf("touched %v, want only the unknown pod, at %v", f.cache.touched, now)
		}
	})
}

// The memory of removed containers is bounded; a list clears it.
func TestManyRemovedPodsRequestARelist(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		remove := func(n int) {
			var pods []*pleg.Pod
			for i := range n {
				pods = append(pods, plegtest.Pod(pleg.PodUID(fmt.Sprint(f.lists, "-", i)), fmt.Sprintf("c%d-%d=exited", f.lists, i)))
			}
			f.listAndSettle(pods...)
			for _, pod := range pods {
				f.sendObservation(goneAt(f, pod.UID, 1))
				f.settleAll(nil)
			}
			f.lister.takeRelisted()
		}
		remove(4000)
		remove(4000) // the list has cleared the first ones
		if got := f.lister.relists.Load(); got != 0 {
			t.Errorf("relists requested = %d, want none yet", got)
		}
		remove(4200)
		if got := f.lister.relists.Load(); got == 0 {
			t.Error("no relist requested")
		}
	})
}

func TestReinspectionRequestsARelist(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running"))
		f.requestReinspect("a")
		if got := f.lister.relists.Load(); got != 1 {
			t.Errorf("relists requested = %d, want 1", got)
		}
	})
}
