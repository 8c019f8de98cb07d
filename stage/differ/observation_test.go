package differ_test

import (
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

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

func TestOlderObservationsAreIgnored(t *testing.T) {
	const still, dead = "c=running", "c=exited"
	stale := func(want float64) step {
		return func(t *testing.T, f *fixture) {
			kit.RequireMetric(t, f.metrics, want, "pleg_stale_observations_total")
		}
	}
	testSteps(t, map[string][]step{
		"CRI event before the listing":       {have(still), event(-10, dead, dead), wantNone, stale(1), touched(0)},
		"single-pod list before the listing": {have(still), alone(-10, dead), wantNone, stale(1), touched(0)},
		"pod gone before the listing":        {have(still), alone(-10, gone), wantNone, stale(1), touched(0)},
		"single-pod list before a CRI event": {
			have(still), event(2, still, still), func(_ *testing.T, f *fixture) { clear(f.cache.touched) },
			alone(1, still), wantNone, stale(1), touched(0),
		},
		"newer CRI event without a change": {have(still), event(10, still, still), wantNone, stale(0), touched(2)},
	})
}
