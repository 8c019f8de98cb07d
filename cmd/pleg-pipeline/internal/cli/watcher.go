package cli

import (
	"context"
	"io"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

// watcher runs a pipeline and prints its events.
type watcher struct {
	out     console
	pipe    *pipeline.Pipeline
	printer printer.Printer[pipeline.Event] // nil to print nothing
	stdout  io.Writer
	// parts run beside the pipeline and end with their context.
	parts []func(context.Context) error
	// printed counts the printed events of each type. It is set when run has
	// returned, but stays nil if the reader of the output stopped reading.
	printed map[pipeline.EventType]int
}

// run ends when ctx ends, the output fails or a part fails, and returns the cause.
// It first prints the events that were published before.
func (w *watcher) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var parts errgroup.Group
	add := func(part func(context.Context) error) {
		parts.Go(func() error {
			if err := part(ctx); err != nil {
				cancel(err)
			}
			return nil
		})
	}
	printed := make(chan map[pipeline.EventType]int, 1)
	if w.printer == nil {
		printed <- nil
	} else {
		subscription, err := w.pipe.Subscribe(pipeline.SubscribeOptions{Name: "stdout"})
		if err != nil {
			return err
		}
		add(func(ctx context.Context) error { return waitForReader(ctx, w.stdout) })
		// Printing is not a part: nothing can end a write to a pipe that nobody
		// reads.
		go func() {
			counts, err := w.print(subscription)
			if err != nil {
				cancel(err)
			}
			printed <- counts
		}()
	}
	add(w.pipe.Run)
	for _, part := range w.parts {
		add(part)
	}
	_ = parts.Wait() // their errors are causes of ctx
	select {
	case w.printed = <-printed:
	case <-time.After(drainTimeout):
		sayUnread(ctx, w.out)
	}
	return context.Cause(ctx)
}

// print prints and counts all events until the pipeline has ended.
func (w *watcher) print(subscription *pipeline.Subscription) (map[pipeline.EventType]int, error) {
	counts := make(map[pipeline.EventType]int)
	if err := w.printer.Start(); err != nil {
		return counts, outputError(err)
	}
	for ev := range subscription.Events() {
		if err := w.printer.Print(ev); err != nil {
			return counts, outputError(err)
		}
		counts[ev.Type]++
	}
	return counts, nil
}
