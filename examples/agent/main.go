// Command agent is the smallest node agent there is: it prints what happens to
// the pods of a container runtime.
//
//	agent unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: agent ENDPOINT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

// run prints events until ctx ends, and returns its cause.
func run(ctx context.Context, endpoint string, out io.Writer) error {
	runtime, err := cri.New(endpoint, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	p, err := pipeline.New(pipeline.Options{Runtime: runtime})
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{Name: "agent"})
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error {
		for ev := range sub.Events() {
			fmt.Fprintln(out, ev.Type, ev.PodNamespace+"/"+ev.PodName, ev.ContainerName)
		}
		return nil
	})
	return tasks.Wait()
}
