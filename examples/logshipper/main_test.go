package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The log of every container is read and completed: of one that ran before the shipper
// started, that exited between two relists, or that was removed at once.
func TestLogShipperReadsLogOfEveryContainer(t *testing.T) {
	rt, _ := exampletest.NewRuntime(t, simruntime.PodSpec{UID: "u", Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{
		{Name: "nginx"}, {Name: "init", State: simruntime.Exited},
	}})
	out := exampletest.Run(t, rt, run)
	const logs = "/var/log/pods/shop_web_u/"
	out.Await("read "+logs+"nginx/0.log", "read "+logs+"init/0.log", "complete "+logs+"init/0.log")
	runContainer(t, rt, "short", false)
	out.Await("read "+logs+"short/0.log", "complete "+logs+"short/0.log")
	runContainer(t, rt, "removed", true)
	out.Await("read "+logs+"removed/0.log", "complete "+logs+"removed/0.log")
}

// runContainer starts a container, ends it and may remove it, all at the same time.
func runContainer(t *testing.T, rt *simruntime.Runtime, name string, remove bool) {
	t.Helper()
	rt.Update(func(tx *simruntime.Txn) {
		c, err := tx.AddContainer("u", simruntime.ContainerSpec{Name: name})
		if err == nil {
			err = tx.ExitContainer(c.ID, 0, simruntime.ReasonCompleted)
		}
		if err == nil && remove {
			err = tx.RemoveContainer(c.ID)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// A PodSync replaces discarded events: a start, an end, a removal.
func TestShipperCatchesUpAfterPodSync(t *testing.T) {
	var out strings.Builder
	status := &pleg.PodStatus{Containers: []*pleg.ContainerStatus{
		{ID: "a", Name: "a", State: pleg.StateExited},
		{ID: "c", Name: "c", State: pleg.StateRunning, Attempt: 2},
	}}
	s := newShipper(&out)
	for _, id := range []pleg.ContainerID{"a", "b"} {
		s.handle(event(pleg.ContainerStarted, id))
	}
	sync := event(pleg.PodSync, "")
	sync.Status = status
	s.handle(sync)
	s.handle(sync)
	s.handle(event(pleg.ContainerDied, "c"))
	for _, id := range []pleg.ContainerID{"a", "b", "c"} {
		s.handle(event(pleg.ContainerRemoved, id))
	}
	want := "read a/0, read b/0, complete a/0, read c/2, complete b/0, complete c/2"
	got := strings.NewReplacer("/var/log/pods/n_p_u/", "", ".log\n", ", ").Replace(out.String())
	if got := strings.TrimSuffix(got, ", "); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if len(s.logs) > 0 {
		t.Errorf("the shipper still has %v of removed containers", s.logs)
	}
}

func event(t pleg.EventType, id pleg.ContainerID) pleg.Event {
	return pleg.Event{Type: t, PodUID: "u", PodName: "p", PodNamespace: "n", ContainerID: id, ContainerName: string(id)}
}
