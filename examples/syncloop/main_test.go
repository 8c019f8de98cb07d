package main

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestProgram(t *testing.T) {
	exampletest.RequireProgram(t, "syncloop", "sync shop/web: 1 of 1 containers run")
}

// The loop skips until the first list has succeeded, and then acts on events.
func TestSyncLoopActsOnEvents(t *testing.T) {
	rt, pod := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []pleg.ContainerStatus{{Name: "nginx"}}})
	rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", Code: codes.Unavailable, Times: 1})
	out := exampletest.Run(t, rt, run)
	if read := out.Await("sync shop/web: 1 of 1 containers run"); !strings.HasPrefix(read[0], "skip: ") {
		t.Errorf("printed %q, want a skip before the first list", read)
	}
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, "Error"); err != nil {
		t.Fatal(err)
	}
	out.Await("sync shop/web: 0 of 1 containers run", "clean up shop/web nginx")
}

// The same loop works on the pipeline of a daemon.
func TestSyncLoopOnADaemon(t *testing.T) {
	rt, pod := exampletest.NewRuntime(t, simruntime.PodSpec{Namespace: "shop", Name: "web", Containers: []pleg.ContainerStatus{{Name: "nginx"}}})
	out := exampletest.Run(t, rt, func(ctx context.Context, endpoint string, out io.Writer, log *slog.Logger) error {
		runtime, err := cri.New(endpoint, cri.Options{})
		if err != nil {
			return err
		}
		defer runtime.Close()
		p, err := pipeline.New(pipeline.Options{Runtime: runtime})
		if err != nil {
			return err
		}
		s, err := server.New(p, server.Options{})
		if err != nil {
			return err
		}
		socket := filepath.Join(t.TempDir(), "pleg.sock")
		listener, err := server.Listen(ctx, socket)
		if err != nil {
			return err
		}
		tasks, ctx := errgroup.WithContext(ctx)
		tasks.Go(func() error { return p.Run(ctx) })
		tasks.Go(func() error { return s.Serve(ctx, listener) })
		tasks.Go(func() error { return runOnDaemon(ctx, socket, out, log) })
		return tasks.Wait()
	})
	out.Await("sync shop/web: 1 of 1 containers run")
	if err := rt.ExitContainer(pod.Containers[0].ID, 1, "Error"); err != nil {
		t.Fatal(err)
	}
	out.Await("sync shop/web: 0 of 1 containers run", "clean up shop/web nginx")
}
