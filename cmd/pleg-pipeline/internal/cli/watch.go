package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// liveHeap is the heap in use after a garbage collection, where a leak shows
// first.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}

// watch prints and serves the events of one runtime until ctx ends, and then
// prints a summary.
func (c *runCommand) watch(ctx context.Context, out console, from endpoint.Endpoint) error {
	began := time.Now()
	// Listening comes first, so that a bad address fails at once.
	web, access, err := c.listenHTTP(ctx, out)
	if err != nil {
		return err
	}
	defer closeListener(web) // Serve closes it too; this is for the errors below
	socket, err := c.listenSocket(ctx, out)
	if err != nil {
		return err
	}
	defer closeListener(socket)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newBuildMetric(buildInfo()), collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	client, err := c.connect(ctx, out, from, c.pipeline.clientOptions(out.log, registry))
	if err != nil {
		return interrupted(ctx, out, err)
	}
	defer func() { _ = client.Close() }()
	pipe, err := pipeline.New(c.pipeline.options(client, out.log, registry))
	if err != nil {
		return err
	}
	w := watcher{out: out, pipe: pipe, stdout: c.process.Out, began: time.Now(), period: c.pipeline.RelistPeriod}
	if !c.quiet {
		w.printer = view.EventPrinter(c.process.Out, c.output.options(c.process))
	}
	publishers, err := c.publish.publishers(ctx, c.process, pipe, registry, out)
	defer publishers.closeAll()
	if err != nil {
		return err
	}
	w.parts = append(w.parts, publishers.parts...)
	if web != nil {
		w.parts = append(w.parts, c.serveHTTP(web, httpserver.Options{
			Pipeline: pipe, Gatherer: registry, Logger: out.log, HidePods: access.HidePods,
			MaxStreams: c.server.streams, Buffer: c.server.buffer, Parts: publishers.states,
		}, access))
	}
	if socket != nil {
		o := c.server.options()
		o.Logger, o.Registerer = out.log, registry
		s, err := server.New(pipe, o)
		if err != nil {
			return err
		}
		w.parts = append(w.parts, func(ctx context.Context) error { return s.Serve(ctx, socket) })
	}
	err = w.run(ctx)
	if errors.Is(err, context.Canceled) {
		out.say(ctx, "%v", summary{err, time.Since(began), registry, w.printed})
		return nil
	}
	return err
}

// connect returns a client of a runtime that has answered, or with --wait-for-runtime
// also of one that does not answer yet: the pipeline lists it until it does.
func (c *runCommand) connect(ctx context.Context, out console, from endpoint.Endpoint, o cri.Options) (*cri.Client, error) {
	if !c.runtime.wait {
		return connect(ctx, out, from, o)
	}
	client, err := cri.New(from.Address, o)
	if err != nil {
		return nil, fmt.Errorf("%w (from %s)", err, from.Source)
	}
	if version, err := client.Check(ctx); err != nil {
		why, _ := explain(err)
		out.say(ctx, "%s; waiting for it", why)
	} else {
		out.say(ctx, "connected to %s %s at %s", view.Printable(version.RuntimeName), view.Printable(version.RuntimeVersion), from.Address)
	}
	return client, nil
}

// interrupted returns err, or nil if the end of ctx caused it, which it reports.
func interrupted(ctx context.Context, out console, err error) error {
	if ctx.Err() == nil {
		return err
	}
	out.say(ctx, "%v before the runtime had answered", context.Cause(ctx))
	return nil
}

func closeListener(l net.Listener) {
	if l != nil {
		_ = l.Close()
	}
}

// listenSocket returns nil without --socket. It creates the directory of the
// socket, because /run is empty after a boot, but not the parents of that.
func (c *runCommand) listenSocket(ctx context.Context, out console) (net.Listener, error) {
	if c.socket == "" {
		return nil, nil
	}
	path, err := filepath.Abs(c.socket)
	if err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	listener, err := server.Listen(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	out.say(ctx, "serving pods and events on %s; to see them: %s events --connect %s", path, Name, path)
	return listener, nil
}

// listenHTTP returns nil without --listen.
func (c *runCommand) listenHTTP(ctx context.Context, out console) (net.Listener, *httpserver.Access, error) {
	if c.listenAddress == "" {
		return nil, nil, nil
	}
	listener, err := httpserver.Listen(ctx, c.listenAddress)
	if err != nil {
		return nil, nil, fmt.Errorf("--listen: %w", err)
	}
	access, err := httpserver.NewAccess(listener.Addr(), c.webConfig)
	if err != nil {
		closeListener(listener)
		return nil, nil, fmt.Errorf("--web-config: %w", err)
	}
	scheme := "http"
	if c.webConfig != "" {
		scheme = "http(s)"
	}
	if access.PodsHidden() != nil {
		out.say(ctx, "serving metrics and health on %s://%v, but no pods and events, because other machines can connect: see --web-config", scheme, listener.Addr())
	} else {
		out.say(ctx, "serving a page, metrics, health, pods and events on %s://%v", scheme, listener.Addr())
	}
	return listener, access, nil
}

func (c *runCommand) serveHTTP(l net.Listener, o httpserver.Options, access *httpserver.Access) func(context.Context) error {
	return func(ctx context.Context) error {
		return httpserver.Serve(ctx, l, httpserver.Handler(o), access, o.Logger)
	}
}

// watcher runs a pipeline and prints its events.
type watcher struct {
	out     console
	pipe    *pipeline.Pipeline
	printer view.Printer[pleg.Event] // nil to print nothing
	stdout  io.Writer
	// began is just before the first list, period the time from that to the second.
	began  time.Time
	period time.Duration
	// parts run beside the pipeline and end with their context.
	parts []func(context.Context) error
	// printed counts the printed events of each type. It is set when run has
	// returned, but stays nil if the reader of the output stopped reading.
	printed map[pleg.EventType]int
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
	printed := make(chan map[pleg.EventType]int, 1)
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
func (w *watcher) print(subscription *pipeline.Subscription) (map[pleg.EventType]int, error) {
	counts := make(map[pleg.EventType]int)
	if err := w.printer.Start(); err != nil {
		return counts, outputError(err)
	}
	// first is the time of the first list, whose events say what was there before.
	var first time.Time
	for ev := range subscription.Events() {
		if len(counts) == 0 && ev.ObservedAt.Before(w.began.Add(w.period)) {
			first = ev.ObservedAt
		}
		ev.Replayed = ev.Replayed || !first.IsZero() && ev.ObservedAt.Equal(first)
		if err := w.printer.Print(ev); err != nil {
			return counts, outputError(err)
		}
		counts[ev.Type]++
	}
	return counts, nil
}
