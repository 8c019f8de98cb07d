package cli

import (
	"context"
	"io"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
)

// watcher runs a pipeline with one subscriber, the printer.
type watcher struct {
	out     console
	pipe    *pipeline.Pipeline
	printer printer.Printer[pipeline.Event] // nil to print nothing
	stdout  io.Writer
	// also are run beside the pipeline and end with their context.
	also []func(context.Context) error
	// printed is how many events of each type were printed, once run has
	// returned; nil if the output was not read to the end.
	printed map[pipeline.EventType]int
}

// run ends with ctx, when the output fails or when one of the others does, and
// returns the cause. What was published by then is printed first.
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
	if w.printer != nil {
		subscription, err := w.pipe.Subscribe(pipeline.SubscribeOptions{Name: "stdout"})
		if err != nil {
			return err
		}
		if file, ok := w.stdout.(*os.File); ok {
			add(func(ctx context.Context) error { return hangup(ctx, file) })
		}
		// Not one of the parts, since nothing can end a write to a pipe that
		// nobody reads.
		go func() {
			counts, err := w.print(subscription)
			if err != nil {
				cancel(err)
			}
			printed <- counts
		}()
	} else {
		printed <- nil
	}
	add(w.pipe.Run)
	for _, part := range w.also {
		add(part)
	}
	_ = parts.Wait() // their errors are causes of ctx
	select {
	case w.printed = <-printed:
	case <-time.After(drainTimeout):
		w.out.say(ctx, "the output is not read: the last events are lost")
	}
	return context.Cause(ctx)
}

// print prints all events until the pipeline has ended, and counts them.
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
