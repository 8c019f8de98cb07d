package differ_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func (f *fixture) requirePending(t *testing.T, want ...pleg.PodUID) {
	t.Helper()
	if !slices.Equal(f.cache.pending, want) || !f.cache.observed.Equal(at(f.lists)) {
		t.Errorf("cache has the listing of %v with %v pending, want the listing of %v with %v",
			f.cache.observed, f.cache.pending, at(f.lists), want)
	}
}

func TestListingCoversEveryPodThatIsNotPending(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		a, other := plegtest.Pod("a", "c=running"), plegtest.Pod("b", "d=running")
		f.list(a, other)
		f.requirePending(t, "a", "b")
		f.requireChange(t, "a", "Started(c)")
		f.requireChange(t, "b", "Started(d)")
		f.settle("a", nil)
		f.list(a, other)
		f.requirePending(t, "b")
		f.settle("b", errInspect)
		f.list(other)
		f.requirePending(t, "a", "b")
	})
}

func TestMetrics(t *testing.T) {
	invalid := plegtest.Pod("d", "")
	invalid.Containers = []*pleg.Container{{ID: "x", State: 99}}
	pods := []*pleg.Pod{
		plegtest.Pod("a", "c=running d=exited e=created /s=running /t=running"),
		plegtest.Pod("b", "c=running /s=exited"),
		plegtest.Pod("c", "c=unknown /s=running"),
		plegtest.Pod("a", ""),
		invalid,
	}
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.list(pods...)
		kit.RequireMetric(t, f.metrics, 2, "pleg_running_pods")
		kit.RequireMetric(t, f.metrics, 1, "pleg_duplicate_pods_total")
		for state, want := range map[string]float64{"running": 2, "exited": 2, "created": 1, "unknown": 1} {
			kit.RequireMetric(t, f.metrics, want, "pleg_running_containers", state)
		}
	})
}

// A list of all pods that began before may still show a pod that was found gone.
func TestGonePodIsRememberedUntilTheNextList(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.sendObservation(stage.Observation{UID: "a", At: at(1).Add(time.Second / 2), Answered: at(1).Add(time.Second * 3 / 4)})
		f.sendListing(stage.Listing{At: at(1), Answered: at(2), Pods: []*pleg.Pod{runningPod}})
		f.requireNoChange(t) // it may be new or long gone
		f.sendListing(stage.Listing{At: at(3), Pods: []*pleg.Pod{runningPod}})
		f.requireChange(t, "a", "Started(c)")
	})
}

// A list may be answered after events that were made during it. Whoever waits for that list
// does not wait for them.
func TestRelistEndsBesideNewerEvents(t *testing.T) {
	testDiffer(t, all(
		have("c=created /s=running"), event(5, "c=running", running), want("Started(c)"), event(7, "c=exited", exited), succeed, want("Died(c)"),
		func(t *testing.T, f *fixture) {
			f.sendListing(stage.Listing{
				At: at(1).Add(400 * time.Millisecond), Answered: at(2), Pods: podsOf(running), Relisted: []chan<- error{make(chan error, 1)},
			})
			f.settle("a", nil)
			f.settleAll(nil)
			if !slices.ContainsFunc(f.marks, func(m stage.Mark) bool { return len(m.Relisted) == 1 }) {
				t.Error("the caller still waits")
			}
		},
	))
}

// If pods change with each list and their inspections take longer than a period, each list
// ends the wait for those of the one before.
func TestMarksOfABusyNode(t *testing.T) {
	testDiffer(t, func(t *testing.T, f *fixture) {
		f.listAndSettle()
		var pods []*pleg.Pod
		for _, uid := range []pleg.PodUID{"a", "b", "c"} {
			f.marks, pods = nil, append(pods, plegtest.Pod(uid, "c=running"))
			f.list(pods...)
			f.nextChange()
		}
		if len(f.marks) != 1 || !f.marks[0].Current.Equal(at(f.lists-1)) {
			t.Errorf("marks %+v with the last list, want that of the list before", f.marks)
		}
	})
}
