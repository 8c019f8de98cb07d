package invariants_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// After DeliverAfterFailures failed inspections, the pipeline delivers the events that
// the list shows, marked as uninspected. If it is 0, events wait for an inspection.
func TestDeliverAfterFailures(t *testing.T) {
	for _, after := range []int{0, 3} {
		t.Run(fmt.Sprintf("after=%d", after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { deliverAfter(t, after) })
		})
	}
}

func deliverAfter(t *testing.T, after int) {
	r := kit.New(t, pipeline.Options{DeliverAfterFailures: after})
	events := r.Events(t, 0)
	r.Runtime.Set("p", "c=running")
	r.Runtime.SetPodFault("p", plegtest.Fail(errInspect))
	r.StartBetweenLists(t)
	kit.Relist(1) // two failures
	if n := len(events); n != 0 {
		t.Errorf("%d events after two failures, want none", n)
	}
	kit.Relist(20)
	if got, want := len(events), min(after, 1); got != want {
		t.Fatalf("%d events after many failures, want %d", got, want)
	}
	want := pleg.ContainerStarted
	if after > 0 {
		if ev := <-events; ev.Type != pleg.ContainerStarted || !ev.Uninspected {
			t.Errorf("got %+v, want an uninspected ContainerStarted", ev)
		}
		if _, err := r.Cache().Get("p"); err == nil {
			t.Error("the cache does not have the error")
		}
		want = pleg.PodSync
	}
	r.Runtime.SetPodFault("p", nil)
	kit.Relist(2)
	if ev := <-events; ev.Type != want || ev.Uninspected {
		t.Errorf("got %+v after a good inspection, want an inspected %s", ev, want)
	}
}
