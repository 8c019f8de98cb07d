//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// Another program on the node subscribes over the socket and gets what is, and
// then what happens.
func TestService(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	p, seen := runLibrary(ctx, t, l, pipeline.Options{}, true)
	s := newScene(l, seen)
	must(t, s.runPods(ctx, 3))
	must(t, s.awaitAll(ctx))

	srv, err := server.New(p, server.Options{})
	must(t, err)
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	serveCtx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- srv.ListenAndServe(serveCtx, socket) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Errorf("the service ended with %v, want %v", err, context.Canceled)
		}
	})
	c, err := client.New(socket, client.Options{})
	must(t, err)
	defer c.Close()

	replayed, stopped := 0, false
	for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "e2e", Replay: true}) {
		must(t, err)
		switch {
		case ev.Replayed:
			replayed++
		case ev.Type == pleg.Synced:
			if replayed != len(s.pods) {
				t.Errorf("%d events replayed, want one for each of %d sandboxes", replayed, len(s.pods))
			}
			must(t, l.StopPod(ctx, s.pods[0]))
			stopped = true
		case stopped && ev.Type == pleg.ContainerDied && ev.PodUID == pleg.PodUID(s.pods[0].UID):
			return
		}
	}
	t.Error("the watch ended before the sandbox did")
}
