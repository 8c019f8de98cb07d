package differ_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// A CRI event takes nothing back, also if it was made after the list that lacked a
// container. The pod is listed again; a list that still has it brings it back.
func TestCRIEventBringsNoContainerBack(t *testing.T) {
	const ended = 7 * time.Second // after the list began
	for name, tc := range map[string]struct {
		list       []*pleg.Pod // the second one
		removed    string      // the change of the second listing
		event, pod string
		told, back string // the change of the CRI event, and that of the next list
	}{
		"removed":         {[]*pleg.Pod{plegtest.Pod("a", "/s=running")}, "Removed(c)", "d=running", "d=running c=exited /s=running", "Started(d)", "Died(c)"},
		"removed sandbox": {[]*pleg.Pod{plegtest.Pod("a", "/t=running")}, "Removed(c) Died(/s) Removed(/s) Started(/t)", "c=exited", "c=exited /s=exited", "", "Died(/t) Removed(/t) Died(c) Died(/s)"},
		"gone":            {nil, "Removed(c) Died(/s) Removed(/s)", "c=exited", "c=exited /s=exited", "", "Died(c) Died(/s)"},
	} {
		for _, made := range []time.Duration{ended - time.Second, ended + time.Second} {
			runDiffer(t, name, func(t *testing.T, f *fixture) {
				f.listAndSettle(plegtest.Pod("a", "c=exited /s=running"))
				f.sendListing(stage.Listing{Pods: tc.list, Answered: at(2).Add(ended)})
				f.settle(f.requireChange(t, "a", tc.removed).UID, nil)
				f.lister.takeRelisted()
				f.sendObservation(stage.Observation{UID: "a", At: at(2).Add(made), Hint: hint("a", tc.event, tc.pod)})
				if tc.told != "" {
					f.settle(f.requireChange(t, "a", tc.told).UID, nil)
				}
				f.requireNoChange(t)
				if got := f.lister.takeRelisted(); len(got) == 0 {
					t.Error("the pod is not listed again")
				}
				f.sendListing(stage.Listing{At: at(20), Pods: []*pleg.Pod{plegtest.Pod("a", tc.pod)}})
				f.requireChange(t, "a", tc.back)
			})
		}
	}
}

// Two lists that ran at the same time are joined: neither takes back what the other one
// showed, or brings back what it lacked. The pod is listed again, and a list that began later
// settles it.
func TestOverlappingListsAreJoined(t *testing.T) {
	const known = "c=exited d=running /s=running"
	for name, tc := range map[string]struct{ first, second, told, joined string }{
		"exited and running":       {"c=exited d=exited /s=running", known, "Died(d)", ""},
		"running and exited":       {known, "c=exited d=exited /s=running", "", "Died(d)"},
		"a container more":         {known, "c=exited /s=running", "", ""},
		"a container new":          {known, "e=running " + known, "", "Started(e)"},
		"a container less":         {"d=running /s=running", known, "Removed(c)", ""},
		"a sandbox that was ready": {"c=exited d=running /s=exited", known, "Died(/s)", ""},
	} {
		for _, singleFirst := range []bool{false, true} {
			runDiffer(t, name, func(t *testing.T, f *fixture) {
				f.listAndSettle(plegtest.Pod("a", known))
				list := func(single bool, began time.Time, words string) {
					if single {
						f.sendObservation(stage.Observation{UID: "a", At: began, Answered: at(9), Pod: plegtest.Pod("a", words)})
					} else {
						f.sendListing(stage.Listing{At: began, Answered: at(9), Pods: []*pleg.Pod{plegtest.Pod("a", words)}})
					}
				}
				list(singleFirst, at(2), tc.first)
				if tc.told != "" {
					f.settle(f.requireChange(t, "a", tc.told).UID, nil)
				}
				list(!singleFirst, at(3), tc.second)
				if tc.joined != "" {
					f.settle(f.requireChange(t, "a", tc.joined).UID, nil)
				} else if tc.first != tc.second && f.lister.relists.Load() == 0 {
					t.Error("no list is requested")
				}
				f.requireNoChange(t)
				f.sendListing(stage.Listing{At: at(10), Pods: []*pleg.Pod{plegtest.Pod("a", "/s=exited")}})
				if _, ok := f.nextChange(); !ok {
					t.Error("a later list made no change")
				}
			})
		}
	}
}
