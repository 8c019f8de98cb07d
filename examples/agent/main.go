// Command agent is a minimal node agent: it prints the events of the pods of a container runtime.
//
//	agent unix:///run/containerd/containerd.sock
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: agent ENDPOINT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := run(ctx, os.Args[1], os.Stdout, log); err != nil {
		log.Error("agent failed", "err", err)
		os.Exit(1)
	}
	log.Info("agent stopped", "cause", context.Cause(ctx)) // such as: interrupt signal received
}

// run prints events until ctx ends.
func run(ctx context.Context, endpoint string, out io.Writer, log *slog.Logger) error {
	runtime, err := cri.New(endpoint, cri.Options{Logger: log})
	if err != nil {
		return err
	}
	defer runtime.Close()
	// The pipeline retries without end. Check fails at once if there is no runtime.
	version, err := runtime.Check(ctx)
	if err != nil {
		return err
	}
	log.InfoContext(ctx, "connected to the runtime", "name", version.RuntimeName, "version", version.RuntimeVersion)
	p, err := pipeline.New(pipeline.Options{Runtime: runtime, Logger: log})
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(pleg.SubscribeOptions{Name: "agent"})
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error {
		for ev, err := range sub.All(context.WithoutCancel(ctx)) { // until Run has returned
			if err != nil {
				break
			}
			fmt.Fprintln(out, ev.Type, ev.PodNamespace+"/"+ev.PodName, ev.ContainerName)
		}
		return nil
	})
	return tasks.Wait()
}
