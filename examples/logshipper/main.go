// Command logshipper shows a consumer that must not miss a container, however
// short it lived: it prints which log files it would follow and when each is
// complete.
//
//	logshipper unix:///run/containerd/containerd.sock
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
		fmt.Fprintln(os.Stderr, "usage: logshipper ENDPOINT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Stdout); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "logshipper:", err)
		os.Exit(1)
	}
}

// run ships logs until ctx ends, and returns its cause.
func run(ctx context.Context, endpoint string, out io.Writer) error {
	runtime, err := cri.New(endpoint, cri.Options{})
	if err != nil {
		return err
	}
	defer runtime.Close()
	p, err := pipeline.New(pipeline.Options{
		Runtime: runtime,
		// A container that starts, ends and is removed between two lists is seen
		// by its events alone. What the stream misses the lists still find.
		Events: pipeline.EventsAuto,
	})
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(pipeline.SubscribeOptions{Name: "logshipper", OmitSandboxes: true})
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error {
		s := newShipper(out, p.Cache().Get)
		for ev := range sub.Events() {
			s.heed(ev)
		}
		return nil
	})
	return tasks.Wait()
}
