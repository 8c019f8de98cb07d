package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// serveExample serves a runtime with one pod on a socket until stop is called.
func serveExample() (socket string, stop func()) {
	runtime := plegtest.New()
	runtime.Set("web", "app=running /sandbox=running")
	pipe, badPipe := pipeline.New(pipeline.Options{Runtime: runtime})
	s, badServer := server.New(pipe, server.Options{})
	dir, badDir := os.MkdirTemp("", "pleg")
	if err := errors.Join(badPipe, badServer, badDir); err != nil {
		log.Fatal(err)
	}
	socket = filepath.Join(dir, "pleg.sock")
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = pipe.Run(ctx) })
	serving.Go(func() { _ = s.ListenAndServe(ctx, socket) })
	return socket, func() {
		cancel()
		serving.Wait()
		_ = os.RemoveAll(dir)
	}
}

// A program keeps the newest status of each pod.
func ExampleClient_Watch() {
	socket, stop := serveExample()
	defer stop()
	c, err := client.New(socket, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	pods := map[pleg.PodUID]*pleg.PodStatus{}
	for ev, err := range c.Watch(context.Background(), pleg.SubscribeOptions{Replay: true, Statuses: true}) {
		if err != nil {
			log.Fatal(err) // no attempt can succeed
		}
		switch {
		case ev.Type == pleg.Gap:
			clear(pods) // a replay of all pods follows
		case ev.Status == nil: // another mark
		case ev.Status.Name == "": // the pod is gone
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
