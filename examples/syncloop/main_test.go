package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/exampletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The loop skips until the first list has succeeded, and then acts on events.
func TestSyncLoopActsOnEvents(t *testing.T) {
	rt, pod := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []simruntime.ContainerSpec{{Name: "nginx"}}})
	if _, err := rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", Code: codes.Unavailable, Times: 1}); err != nil {
		t.Fatal(err)
	}
	out := exampletest.Run(t, rt, run)
	if read := out.Await("sync shop/web: 1 of 1 containers run"); !strings.HasPrefix(read[0], "skip: ") {
		t.Errorf("printed %q, want a skip before the first list", read)
	}
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, simruntime.ReasonError); err != nil {
		t.Fatal(err)
	}
	out.Await("sync shop/web: 0 of 1 containers run", "clean up shop/web nginx")
}
