package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/examples/internal/exampletest"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Whatever a container's life is, its log is followed and completed: it ran
// before the shipper came, it ended between two looks, or it was removed at once.
func TestLogShipper(t *testing.T) {
	rt, err := simruntime.New(simruntime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rt.AddPod(simruntime.PodSpec{UID: "u", Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{
		{Name: "nginx"}, {Name: "init", State: simruntime.Exited},
	}})
	if err != nil {
		t.Fatal(err)
	}
	out := exampletest.Run(t, rt, run)
	const logs = "/var/log/pods/shop_web_u/"
	out.Await("follow "+logs+"nginx/0.log", "follow "+logs+"init/0.log", "complete "+logs+"init/0.log")
	live(t, rt, "short", false)
	out.Await("follow "+logs+"short/0.log", "complete "+logs+"short/0.log")
	live(t, rt, "removed", true)
	out.Await("follow "+logs+"removed/0.log", "complete "+logs+"removed/0.log")
}

// live has a container start, end and perhaps be removed in one instant.
func live(t *testing.T, rt *simruntime.Runtime, name string, remove bool) {
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
