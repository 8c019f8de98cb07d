package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/examples/internal/exampletest"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The log of every container is read and completed: of one that ran before the shipper
// started, that exited between two relists, or that was removed at once.
func TestLogShipperReadsLogOfEveryContainer(t *testing.T) {
	rt, _ := exampletest.NewRuntime(t, simruntime.PodSpec{UID: "u", Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{
		{Name: "nginx"}, {Name: "init", State: simruntime.Exited},
	}})
	out := exampletest.Run(t, rt, example.Run)
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
