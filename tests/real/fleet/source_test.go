package fleet_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/promises"
)

// A pipeline in the process and a daemon on a socket publish the same.
func TestPipelineAndDaemonPublish(t *testing.T) {
	t.Parallel()
	s := startServer(t, "")
	runtime := plegtest.New()
	runtime.Set("a", "c1=running /s1=running")
	pipe, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: 10 * time.Millisecond})
	kit.Must(t, err)
	kit.Run(t, pipe.Run)
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	serve(t, pipe, socket)
	c, err := client.New(socket, client.Options{})
	kit.Must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	for name, p := range map[string]node.Pipeline{"in-process": pipe, "daemon": c} {
		publish(t, fleet.PublisherOptions{Conn: connect(t, s.URL), Source: p, Node: name})
	}
	w := watch(t, s.URL, fleet.WatchOptions{Replay: true})
	w.Published = nil
	shows := func(uid pleg.PodUID, words string) {
		t.Helper()
		runtime.Set(uid, words)
		var entries []cache.Entry
		pods, _ := runtime.ListPods(t.Context())
		for _, pod := range pods {
			entries = append(entries, cache.Entry{UID: pod.UID, Status: plegtest.Status(pod)})
		}
		truth := promises.CachedTruth(entries)
		w.eventually(func() error { return w.Compare(map[string]promises.Truth{"in-process": truth, "daemon": truth}) })
	}
	shows("a", "c1=running /s1=running")
	shows("a", "c1=exited c2=running /s1=running")
	shows("shop/b", "c3=running /s2=running")
	shows("a", "")
}

func serve(t *testing.T, pipe *pipeline.Pipeline, socket string) {
	t.Helper()
	s, err := server.New(pipe, server.Options{})
	kit.Must(t, err)
	listener, err := server.Listen(t.Context(), socket)
	kit.Must(t, err)
	kit.Run(t, func(ctx context.Context) error { return s.Serve(ctx, listener) })
}
