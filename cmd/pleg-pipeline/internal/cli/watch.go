package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/printer"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// liveHeap is what a leak shows in first: the heap in use after a garbage
// collection.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}

// watch prints the events of one runtime until ctx ends, and then a summary.
func (c *runCommand) watch(ctx context.Context, out console, from endpoint.Endpoint) error {
	began := time.Now()
	// Before anything else is tried, so that a bad address is told at once.
	web, err := c.listenHTTP(ctx, out)
	if err != nil {
		return err
	}
	defer hangUp(web) // Serve closes them too; this is for the ways out before.
	socket, err := c.listenSocket(ctx, out)
	if err != nil {
		return err
	}
	defer hangUp(socket)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(liveHeap)), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	client, err := connect(ctx, out, from, c.pipeline.clientOptions(out.log, registry))
	if err != nil && ctx.Err() != nil {
		out.say(ctx, "%v before the runtime had answered", context.Cause(ctx))
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	pipe, err := pipeline.New(c.pipeline.options(client, out.log, registry))
	if err != nil {
		return err
	}
	w := watcher{out: out, pipe: pipe, stdout: c.process.Out}
	if !c.quiet {
		w.printer = c.printer()
	}
	if web != nil {
		w.also = append(w.also, c.serveHTTP(web, pipe, registry, out))
	}
	if socket != nil {
		s, err := server.New(pipe, server.Options{Logger: out.log, Registerer: registry})
		if err != nil {
			return err
		}
		w.also = append(w.also, func(ctx context.Context) error { return s.Serve(ctx, socket) })
	}
	err = w.run(ctx)
	if errors.Is(err, context.Canceled) {
		out.say(ctx, "%v", summary{err, time.Since(began), registry, w.printed})
		return nil
	}
	return err
}

func (c *runCommand) printer() printer.Printer[pipeline.Event] {
	return printer.Events(c.process.Out, printer.Options{
		Format:  c.output,
		Headers: !c.noHeaders,
		Color:   colorWanted(c.process.Out, c.process.Getenv),
	})
}

func hangUp(l net.Listener) {
	if l != nil {
		_ = l.Close()
	}
}

// listenSocket returns nil if --socket is not given. The directory is made if
// that is all that is missing, as /run is empty after a boot.
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
	out.say(ctx, "pods and events are served on %s: %s events --connect %s", path, Name, path)
	return listener, nil
}
