package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/examples/internal/exampletest"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAgent(t *testing.T) {
	rt, err := simruntime.New(simruntime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := rt.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{{Name: "nginx"}}})
	if err != nil {
		t.Fatal(err)
	}
	out := exampletest.Run(t, rt, run)
	out.Await("ContainerStarted shop/web web", "ContainerStarted shop/web nginx")
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, simruntime.ReasonError); err != nil {
		t.Fatal(err)
	}
	out.Await("ContainerDied shop/web nginx")
}
