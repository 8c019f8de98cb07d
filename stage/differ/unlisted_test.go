package differ_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// The time of a list is when it began. If it takes long, CRI events made before it
// ended may have a later time than the list, and containers that the list did not
// have any more. They bring no container back; a CRI event made after the list
// ended does.
func TestCRIEventMadeDuringAListBringsNoContainerBack(t *testing.T) {
	const ended = 9 // the time at which the lists end
	for name, tc := range map[string]struct {
		list          []*pleg.Pod // the second one
		removed       string      // the change of the second listing
		event, pod    string
		during, after string // the change of a CRI event made during or after the list
	}{
		"removed":         {[]*pleg.Pod{plegtest.Pod("a", "/s=running")}, "Removed(c)", "d=running", "d=running c=exited /s=running", "Started(d)", "Started(d) Died(c)"},
		"removed sandbox": {[]*pleg.Pod{plegtest.Pod("a", "/t=running")}, "Removed(c) Died(/s) Removed(/s) Started(/t)", "c=exited", "c=exited /s=exited", "", "Died(c) Died(/s)"},
		"gone":            {nil, "Removed(c) Died(/s) Removed(/s)", "c=exited", "c=exited /s=exited", "", "Died(c) Died(/s)"},
	} {
		for _, late := range []bool{false, true} {
			runDiffer(t, name, func(t *testing.T, f *fixture) {
				time.Sleep(time.Until(at(ended)))
				f.listAndSettle(plegtest.Pod("a", "c=exited /s=running"))
				f.list(tc.list...)
				f.settle(f.requireChange(t, "a", tc.removed).UID, nil)
				h, made, want := hint("a", tc.event, tc.pod), at(ended-1), tc.during
				if late {
					made, want = at(ended+1), tc.after
				}
				f.sendObservation(stage.Observation{UID: "a", At: made, Hint: h})
				if want != "" {
					f.settle(f.requireChange(t, "a", want).UID, nil)
				}
				f.requireNoChange(t)
			})
		}
	}
}

func TestListBringsAContainerBack(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		time.Sleep(time.Until(at(9)))
		f.listAndSettle(plegtest.Pod("a", "c=running /s=running"))
		f.listAndSettle(plegtest.Pod("a", "/s=running"))
		f.listAndSettle(plegtest.Pod("a", "c=running /s=running"))
		f.sendHint(1, hint("a", "c=exited", "c=exited /s=running"))
		f.requireChange(t, "a", "Died(c)")
	})
}

// A listing and a single-pod list may run at the same time. The one that began later
// may have been answered earlier: it takes nothing back, and the pod is listed again.
func TestOverlappingListsTakeNothingBack(t *testing.T) {
	for name, tc := range map[string]struct{ first, second string }{
		"exited and running":       {"c=exited /s=running", "c=running /s=running"},
		"a container more":         {"c=running /s=running", "/s=running"},
		"a sandbox that was ready": {"/s=exited", "/s=running"},
	} {
		for _, singleFirst := range []bool{false, true} {
			runDiffer(t, name, func(t *testing.T, f *fixture) {
				time.Sleep(time.Until(at(9))) // all lists are answered now
				single := func(n int, words string) {
					f.sendObservation(stage.Observation{UID: "a", At: at(n).Add(time.Second / 2), Pod: plegtest.Pod("a", words)})
				}
				if singleFirst {
					single(0, tc.first)
					f.settleAll(nil)
					f.list(plegtest.Pod("a", tc.second))
				} else {
					f.listAndSettle(plegtest.Pod("a", tc.first))
					single(1, tc.second)
				}
				f.requireNoChange(t)
				if got := f.lister.relists.Load(); got != 1 {
					t.Errorf("lists requested = %d, want 1", got)
				}
				if singleFirst {
					f.requirePending(t, "a")
				}
				time.Sleep(10 * time.Second)
				f.lists = 12
				f.list(plegtest.Pod("a", tc.second)) // it began after both were answered
				if _, ok := f.nextChange(); !ok {
					t.Error("a later list made no change")
				}
			})
		}
	}
}

// Nor does such a list bring a container back that the other one did not have any more.
func TestOverlappingListsBringNothingBack(t *testing.T) {
	const known = "c=exited /s=running"
	for name, tc := range map[string]struct{ without, change string }{
		"container": {"/s=running", "Removed(c)"},
		"pod":       {"", "Removed(c) Died(/s) Removed(/s)"},
	} {
		for _, singleFirst := range []bool{false, true} {
			runDiffer(t, name, func(t *testing.T, f *fixture) {
				f.listAndSettle(plegtest.Pod("a", known))
				time.Sleep(time.Until(at(9))) // all lists are answered now
				var without []*pleg.Pod
				if tc.without != "" {
					without = []*pleg.Pod{plegtest.Pod("a", tc.without)}
				}
				if singleFirst {
					o := stage.Observation{UID: "a", At: at(1).Add(time.Second / 2)}
					if len(without) > 0 {
						o.Pod = without[0]
					}
					f.sendObservation(o)
				} else {
					f.list(without...)
				}
				f.settle(f.requireChange(t, "a", tc.change).UID, nil)
				if singleFirst {
					f.list(plegtest.Pod("a", known))
				} else {
					f.sendObservation(stage.Observation{UID: "a", At: at(2).Add(time.Second / 2), Pod: plegtest.Pod("a", known)})
				}
				f.requireNoChange(t)
				if f.lister.relists.Load() == 0 {
					t.Error("no list is requested")
				}
			})
		}
	}
}
