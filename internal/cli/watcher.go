package cli

import (
	"context"
	"io"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/internal/monitor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/printer"
)

// drainTimeout is how long the end waits for a reader of the output that has
// stopped reading.
const drainTimeout = time.Second

// watcher runs a pipeline with one subscriber, the printer.
type watcher struct {
	out      console
	pipe     *pipeline.Pipeline
	printer  printer.Printer
	stdout   io.Writer
	listener net.Listener // nil for no HTTP
	registry *prometheus.Registry
	// printed is how many events of each type were printed, once run has
	// returned; nil if the output was not read to the end.
	printed map[pipeline.EventType]int
}

// run ends with ctx, when the output fails or when HTTP does, and returns the
// cause. What was published by then is printed first.
func (w *watcher) run(ctx context.Context) error {
	subscription, err := w.pipe.Subscribe(pipeline.SubscribeOptions{Name: "stdout"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var stages errgroup.Group
	also := func(stage func(ctx context.Context) error) {
		stages.Go(func() error {
			if err := stage(ctx); err != nil {
				cancel(err)
			}
			return nil
		})
	}
	also(w.pipe.Run)
	if w.listener != nil {
		also(w.serve)
	}
	if file, ok := w.stdout.(*os.File); ok {
		also(func(ctx context.Context) error { return hangup(ctx, file) })
	}
	printed := make(chan map[pipeline.EventType]int, 1)
	// Not one of the stages, since nothing can end a write to a pipe that
	// nobody reads.
	go func() {
		counts, err := w.print(subscription)
		if err != nil {
			cancel(err)
		}
		printed <- counts
	}()
	_ = stages.Wait() // their errors are causes of ctx
	select {
	case w.printed = <-printed:
	case <-time.After(drainTimeout):
		w.out.say(ctx, "the output is not read: the last events are lost")
	}
	return context.Cause(ctx)
}

func (w *watcher) serve(ctx context.Context) error {
	handler := monitor.Handler(monitor.Options{Gatherer: w.registry, Healthy: w.pipe.Healthy, Logger: w.out.log})
	return monitor.Serve(ctx, w.listener, handler, w.out.log)
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
