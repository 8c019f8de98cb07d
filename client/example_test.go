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
	containers := map[pleg.ContainerID]bool{}
	for ev, err := range c.Watch(ctx, client.WatchOptions{Replay: true, Filter: pleg.Filter{OmitSandboxes: true}}) {
		if err != nil {
			log.Fatal(err) // no attempt can succeed
		}
		switch ev.Type {
		case pleg.Gap:
			clear(containers) // a replay of all containers follows
		case pleg.ContainerStarted:
			containers[ev.ContainerID] = true
		case pleg.ContainerDied, pleg.ContainerRemoved:
			delete(containers, ev.ContainerID)
		case pleg.PodSync:
			// Look at the pod: c.PodStatus(ctx, ev.PodUID, time.Time{})
		}
		if containers["app"] {
			fmt.Println(ev.PodName, ev.ContainerName, ev.Type)
			break
		}
	}
	// Output: name-web of-app ContainerStarted
}

func ExampleClient_PodStatus() {
	ctx, cancel := context.WithCancel(context.Background())
	socket, wait := serveExample(ctx)
	defer wait()
	defer cancel()

	c, err := client.New(socket, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	for _, err := range c.Watch(ctx, client.WatchOptions{Replay: true}) {
		if err != nil {
			log.Fatal(err)
		}
		break // the server answers
	}
	status, err := c.PodStatus(ctx, "web", began)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status.Container("app").State, status.IPs)
	// Output: running [10.0.0.1]
}
