package main

import (
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestProgram(t *testing.T) {
	exampletest.RequireProgram(t, "agent", "ContainerStarted shop/web nginx",
		`level=INFO msg="connected to the runtime" name=simruntime version=0.1.0`, `level=INFO msg="agent stopped" cause="terminated signal received"`)
}

func TestAgentPrintsEvents(t *testing.T) {
	rt, pod := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []pleg.ContainerStatus{{Name: "nginx"}}})
	out := exampletest.Run(t, rt, run)
	out.Await("ContainerStarted shop/web web", "ContainerStarted shop/web nginx")
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, "Error"); err != nil {
		t.Fatal(err)
	}
	out.Await("ContainerDied shop/web nginx")
}

func TestAgentFailsAtOnceWithoutRuntime(t *testing.T) {
	err := run(t.Context(), "unix:///nonexistent/cri.sock", io.Discard, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "the socket does not exist") {
		t.Errorf("run() = %v, want that the socket does not exist", err)
	}
}
