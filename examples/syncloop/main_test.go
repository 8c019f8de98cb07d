package main

import (
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/examples/internal/exampletest"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestSyncLoopActsOnEvents(t *testing.T) {
	rt, pod := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{{Name: "nginx"}}})
	out := exampletest.Run(t, rt, example.Run)
	out.Await("sync shop/web: 1 of 1 containers run")
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, simruntime.ReasonError); err != nil {
		t.Fatal(err)
	}
	out.Await("sync shop/web: 0 of 1 containers run", "clean up shop/web nginx")
}

func TestSyncLoopSkipsWhileUnhealthy(t *testing.T) {
	rt, _ := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web"})
	for _, rpc := range []string{"ListPodSandbox", "StreamPodSandboxes"} {
		if _, err := rt.Inject(simruntime.Fault{RPC: rpc, Code: codes.Unavailable, Times: 1}); err != nil {
			t.Fatal(err)
		}
	}
	read := exampletest.Run(t, rt, example.Run).Await("sync shop/web: 0 of 0 containers run")
	if len(read) < 2 {
		t.Errorf("printed %q, want a skip before the first list", read)
	}
}
