package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"time"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// serveExample serves a runtime with one pod, on a socket, until ctx ends.
func serveExample(ctx context.Context) (socket string, wait func()) {
	runtime := plegtest.New()
	runtime.Set("web", "app=running /sandbox=running")
	pipe, err := pipeline.New(pipeline.Options{Runtime: runtime, RelistPeriod: 10 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	s, err := server.New(pipe, server.Options{})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pleg")
	if err != nil {
		log.Fatal(err)
	}
	socket = filepath.Join(dir, "pleg.sock")
	var serving sync.WaitGroup
	serving.Go(func() { _ = pipe.Run(ctx) })
	serving.Go(func() { _ = s.ListenAndServe(ctx, socket) })
	return socket, func() {
		serving.Wait()
		_ = os.RemoveAll(dir)
	}
}

func ExampleClient_Watch() {
	ctx, cancel := context.WithCancel(context.Background())
	socket, wait := serveExample(ctx)
	defer wait()
	defer cancel()

	c, err := client.New(socket, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	pods := map[pleg.PodUID]*pleg.PodStatus{}
	for ev, err := range c.Watch(ctx, client.WatchOptions{Replay: true, Statuses: true}) {
		if err != nil {
			log.Fatal(err) // no attempt can succeed
		}
		switch {
		case ev.Type == pleg.Gap:
			clear(pods) // a replay of all pods follows
		case ev.Status == nil: // another mark
		case ev.Status.Name == "": // it is gone
			delete(pods, ev.PodUID)
		default:
			pods[ev.PodUID] = ev.Status
		}
		if ev.Type == pleg.Synced {
			break
		}
	}
	fmt.Println(len(pods), pods["web"].Container("app").State, pods["web"].IPs)
	// Output: 1 running [10.0.0.1]
}
