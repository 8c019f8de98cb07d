package node_test

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
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// program prints the containers of the node; it does not know where the pipeline runs.
func program(ctx context.Context, p node.Pipeline) error {
	for ev, err := range p.Watch(ctx, pleg.SubscribeOptions{Replay: true, Filter: pleg.Filter{OmitSandboxes: true}}) {
		if err != nil || ev.Type == pleg.Synced {
			return err
		}
		c, err := p.Lookup(ctx, lookup.Query{Container: ev.ContainerID})
		if err != nil {
			return err
		}
		status, err := p.PodStatus(ctx, ev.PodUID, time.Time{})
		if err != nil {
			return err
		}
		fmt.Println(c.PodNamespace, c.Name, c.State, c.Image, status.IPs)
	}
	return nil
}

// A program moves from a pipeline of its own to the daemon of the node by one line.
func Example() {
	runtime := plegtest.New()
	runtime.SetDetails(func(s *pleg.PodStatus) { s.Containers[0].Image = "nginx:1.27" })
	runtime.Set("shop/web", "nginx=running /sandbox=running")
	pipe, err := pipeline.New(pipeline.Options{Runtime: runtime})
	if err != nil {
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pleg")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(context.Background())
	s, err := server.New(pipe, server.Options{})
	if err != nil {
		log.Fatal(err)
	}
	socket := filepath.Join(dir, "pleg.sock")
	var serving sync.WaitGroup
	serving.Go(func() { _ = pipe.Run(ctx) })
	serving.Go(func() { _ = s.ListenAndServe(ctx, socket) })
	daemon, err := client.New(socket, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer daemon.Close()

	fmt.Println(program(ctx, daemon))
	fmt.Println(program(ctx, pipe))
	stop()
	serving.Wait()
	// Output:
	// shop of-nginx running nginx:1.27 [10.0.0.1]
	// <nil>
	// shop of-nginx running nginx:1.27 [10.0.0.1]
	// <nil>
}
