package differ_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

func TestHintGivesAChangeAtOnce(t *testing.T) {
	for name, tc := range map[string]struct{ before, event, pod, want string }{
		"new pod":                {"", "/s=running", "/s=running", "Started(/s)"},
		"started":                {"/s=running", "c=running", "c=running /s=running", "Started(c)"},
		"exited":                 {"c=running /s=running", "c=exited", "c=exited /s=running", "Died(c)"},
		"removed":                {"c=exited /s=running", "c=removed", "/s=running", "Removed(c)"},
		"created":                {"/s=running", "c=created", "c=created /s=running", "Created(c)"},
		"second sandbox":         {"c=exited /s=exited", "/t=running", "/t=running", "Started(/t)"},
		"also another container": {"c=running d=running /s=running", "c=exited", "c=exited d=exited /s=running", "Died(c) Died(d)"},
	} {
		for _, hasStatus := range []bool{false, true} {
			runDiffer(t, fmt.Sprint(name, ", with a status: ", hasStatus), func(t *testing.T, f *fixture) {
				f.listAndSettle()
				if tc.before != "" {
					f.listAndSettle(plegtest.Pod("a", tc.before))
				}
				h := hint("a", tc.event, tc.pod)
				if hasStatus {
					h = withStatus(h)
				}
				f.sendHint(1, h)
				c := f.requireChange(t, "a", tc.want)
				if got, want := c.Status != nil, hasStatus && name != "second sandbox"; got != want {
					t.Errorf("has a status: %v, want %v", got, want)
				}
				want := at(f.lists).Add(time.Second / 10)
				if name == "second sandbox" { // the event does not show the first one
					want = at(f.lists).Add(1)
				}
				if !c.At.Equal(want) {
					t.Errorf("change at %v, want %v", c.At, want)
				}
				f.requireNoChange(t)
			})
		}
	}
}

// The differ uses the status of a CRI event only if it covers the whole pod.
func TestIncompleteStatusOfAHintIsNotUsed(t *testing.T) {
	for name, breakHint := range map[string]func(*pleg.Hint){
		"no status":               func(h *pleg.Hint) { h.Status = nil },
		"no container":            func(h *pleg.Hint) { h.Status.Containers = nil },
		"no sandbox":              func(h *pleg.Hint) { h.Status.Sandboxes = nil },
		"another container state": func(h *pleg.Hint) { h.Status.Containers[0].State = pleg.StateCreated },
		"another sandbox state":   func(h *pleg.Hint) { h.Status.Sandboxes[0].Ready = false },
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(plegtest.Pod("a", "/s=running"))
			h := withStatus(hint("a", "c=running", "c=running /s=running"))
			breakHint(h)
			f.sendHint(1, h)
			if c := f.requireChange(t, "a", "Started(c)"); c.Status != nil {
				t.Error("the status was used")
			}
		})
	}
}

// A list may show the end of a container before its event arrives, and the container may
// be removed before it is inspected. Then only the event has its exit code.
func TestFinalStatusOfALateEventIsKept(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running"))
		f.list(plegtest.Pod("a", "c=exited"))
		f.requireChange(t, "a", "Died(c)")
		h := withStatus(hint("a", "c=exited", "c=exited"))
		f.sendObservation(stage.Observation{At: at(2).Add(-time.Second / 2), UID: "a", Hint: h})
		if len(f.cache.kept) != 1 || f.cache.kept[0] != h.Status.Container("c") {
			t.Errorf("kept %v, want the final status of c", f.cache.kept)
		}
	})
}

func TestRequestedReinspectionIgnoresTheStatusOfAHint(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running"))
		f.requestReinspect("a")
		f.sendHint(1, withStatus(hint("a", "c=exited", "c=exited")))
		if c := f.requireChange(t, "a", "Died(c)"); !c.Reinspect || c.Status != nil {
			t.Errorf("Reinspect: %v, has a status: %v, want a reinspection without a status", c.Reinspect, c.Status != nil)
		}
	})
}

// The pod may be there again already, and an event with its status shows that without an
// inspection.
func TestRequestForAPodThatIsGoneIsServedOnceItIsBack(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=running"))
		f.list()
		f.requireKnownChange(t, "a", "Died(c) Removed(c)")
		f.requestReinspect("a")
		f.settle("a", nil)
		f.sendHint(2, withStatus(hint("a", "d=running", "d=running")))
		f.requireChange(t, "a", "Started(d)")
		f.settle("a", nil)
		f.list(plegtest.Pod("a", "d=running"))
		if c := f.requireChange(t, "a", "PodSync"); !c.Reinspect {
			t.Error("the pod is not inspected")
		}
	})
}

// The clock of a runtime may be coarse, and that of a test stands still.
func TestEventOfTheMomentInWhichAListBegan(t *testing.T) {
	for name, tc := range map[string]struct{ event, pod, want string }{
		"started": {"d=running", "c=running d=running", "Started(d)"},
		"died":    {"c=exited", "c=exited", "Died(c)"},
		"removed": {"c=removed", "/s=running", "Died(c) Removed(c) Started(/s)"},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(plegtest.Pod("a", "c=running"))
			f.sendObservation(stage.Observation{At: at(1), UID: "a", Hint: withStatus(hint("a", tc.event, tc.pod))})
			f.requireChange(t, "a", tc.want)
		})
	}
}

// A container, a pod or its UID that lists show, lack and show again has a life in each of
// them, as in the kubelet.
func TestFlappingLists(t *testing.T) {
	const gone = "-"
	for name, tc := range map[string]struct{ first, second, events, back string }{
		"a container":       {"c=running d=running", "d=running", "Died(c) Removed(c)", "Started(c)"},
		"a pod":             {"c=running", gone, "Died(c) Removed(c)", "Started(c)"},
		"entries of a UID":  {"c=running", "d=running", "Died(c) Removed(c) Started(d)", "Died(d) Removed(d) Started(c)"},
		"a dead container":  {"c=exited d=running", "d=running", "Removed(c)", "Died(c)"},
		"back and it lives": {"c=exited d=running", "c=running d=running", "Started(c)", "Died(c)"},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			list := func(words string) {
				if words == gone {
					f.list()
				} else {
					f.list(plegtest.Pod("a", words))
				}
			}
			f.listAndSettle(plegtest.Pod("a", tc.first))
			for range 3 {
				list(tc.second)
				f.requireChange(t, "a", tc.events)
				f.settle("a", nil)
				list(tc.first)
				f.requireChange(t, "a", tc.back)
				f.settle("a", nil)
			}
		})
	}
}

func TestOlderObservationsAreIgnored(t *testing.T) {
	old := at(1).Add(-time.Second)
	for name, tc := range map[string]struct {
		hints []*pleg.Hint // sent before late, one tenth of a second apart
		late  stage.Observation
		stale float64
	}{
		"CRI event before the listing":       {late: stage.Observation{At: old, Hint: hint("a", "c=exited", "c=exited")}, stale: 1},
		"single-pod list before the listing": {late: stage.Observation{At: old, Pod: plegtest.Pod("a", "c=exited")}, stale: 1},
		"pod gone before the listing":        {late: stage.Observation{At: old}, stale: 1},
		"single-pod list before a CRI event": {
			hints: []*pleg.Hint{hint("a", "c=running", "c=running")},
			late:  stage.Observation{At: at(1).Add(time.Second / 20), Pod: plegtest.Pod("a", "c=running")},
			stale: 1,
		},
		"newer CRI event without a change": {late: stage.Observation{At: at(2), Hint: hint("a", "c=running", "c=running")}},
	} {
		runDiffer(t, name, func(t *testing.T, f *fixture) {
			f.listAndSettle(plegtest.Pod("a", "c=running"))
			for n, h := range tc.hints {
				if h != nil {
					f.sendHint(n+1, h)
				}
			}
			if tc.late.UID == "" {
				tc.late.UID = "a"
			}
			before := f.cache.touched[tc.late.UID]
			f.sendObservation(tc.late)
			f.requireNoChange(t)
			if got := f.counter(t, "pleg_stale_observations_total"); got != tc.stale {
				t.Errorf("stale observations = %v, want %v", got, tc.stale)
			}
			want := before
			if tc.stale == 0 {
				want = tc.late.At
			}
			if got := f.cache.touched[tc.late.UID]; !got.Equal(want) {
				t.Errorf("touched at %v, want %v", got, want)
			}
		})
	}
}

// CRI events may arrive out of order. A container's state only moves forward.
func TestHintMovesNoStateBackward(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle(plegtest.Pod("a", "c=exited d=running /s=exited"))
		f.sendHint(1, withStatus(hint("a", "d=running", "c=running d=running /s=running")))
		f.sendHint(2, withStatus(hint("a", "c=created", "c=created")))
		f.requireNoChange(t)
		f.sendHint(3, withStatus(hint("a", "d=exited", "c=running d=exited /s=running")))
		if c := f.requireChange(t, "a", "Died(d)"); c.Status != nil {
			t.Error("an outdated status was used")
		}
	})
}

func TestHintRetriesAFailedInspection(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(plegtest.Pod("a", "c=running"))
		f.requireChange(t, "a", "Started(c)")
		f.settle("a", errInspect)
		if got := f.lister.relists.Load(); got != 1 {
			t.Errorf("relists requested after a failure = %d, want 1", got)
		}
		f.sendHint(1, hint("a", "c=exited", "c=exited"))
		f.requireChange(t, "a", "Died(c)")
		f.settle("a", errInspect)
		f.sendHint(2, withStatus(hint("a", "c=exited", "c=exited")))
		f.requireChange(t, "a", "Died(c)")
		f.settle("a", nil)
		f.list(plegtest.Pod("a", "c=exited"))
		f.requireNoChange(t)
	})
}
