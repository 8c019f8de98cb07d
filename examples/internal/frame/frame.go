// Package frame is what the other examples share with example agent, which shows it in
// full: it runs a pipeline with one subscriber until a signal.
package frame

import (
	"context"
	"errors"
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

// Example is a program with a pipeline.
type Example struct {
	// Name is the name of the program and its subscription.
	Name string
	// Pipeline and Subscribe are options. Run adds the runtime, the logger and the
	// name.
	Pipeline  pipeline.Options
	Subscribe pipeline.SubscribeOptions
	// Work reads the events until their channel is closed or ctx ends.
	Work func(ctx context.Context, p *pipeline.Pipeline, events <-chan pleg.Event, out io.Writer) error
}

// Main runs the example on the endpoint that the command line names, until a signal.
func (e Example) Main() {
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "usage: %s ENDPOINT\n", e.Name)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := e.Run(ctx, os.Args[1], os.Stdout, log); !errors.Is(err, context.Canceled) {
		log.Error("example failed", "err", err)
		os.Exit(1)
	}
}

// Run runs the example until ctx ends, and returns the cause of ctx.
func (e Example) Run(ctx context.Context, endpoint string, out io.Writer, log *slog.Logger) error {
	runtime, err := cri.New(endpoint, cri.Options{Logger: log})
	if err != nil {
		return err
	}
	defer runtime.Close()
	if _, err := runtime.Check(ctx); err != nil {
		return err
	}
	e.Pipeline.Runtime, e.Pipeline.Logger, e.Subscribe.Name = runtime, log, e.Name
	p, err := pipeline.New(e.Pipeline)
	if err != nil {
		return err
	}
	sub, err := p.Subscribe(e.Subscribe)
	if err != nil {
		return err
	}
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return p.Run(ctx) })
	tasks.Go(func() error { return e.Work(ctx, p, sub.Events(), out) })
	return tasks.Wait()
}
