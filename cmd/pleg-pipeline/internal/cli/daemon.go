package cli

import (
	"cmp"
	"context"
	"errors"
	"net"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/view"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// liveHeap is the heap in use after a garbage collection, where a leak shows
// first.
var liveHeap = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile("^/gc/heap/live:bytes$")}

// serve prints and serves the events of one runtime until ctx ends, and then
// prints a summary.
func (c *runCommand) serve(ctx context.Context, out console, from endpoint.Endpoint) error {
	// Listening comes first, so that a bad address fails at once.
	web, err := c.listenHTTP(ctx, out)
	if err != nil {
		return err
	}
	defer closeListener(web) // Serve closes it too; this is for the errors below
	health, err := c.listenHealth(ctx, out)
	if err != nil {
		return err
	}
	defer closeListener(health)
	socket, err := c.listenSocket(ctx, out)
	if err != nil {
		return err
	}
	defer closeListener(socket)
	return c.serveOn(ctx, out, from, web, health, socket)
}

// serveOn serves on listeners. Each of them may be nil.
func (c *runCommand) serveOn(ctx context.Context, out console, from endpoint.Endpoint, web, health, socket net.Listener) error {
	began := time.Now()
	registry := newRegistry()
	options := c.pipeline.clientOptions(out.log, registry)
	incidents, err := c.newIncidents()
	if err != nil {
		return err
	}
	if incidents != nil {
		options.DialOptions = append(options.DialOptions, incidents.DialOptions()...)
	}
	client, silent, err := c.connect(ctx, out, from, options)
	if err != nil {
		return interrupted(ctx, out, err)
	}
	defer func() { _ = client.Close() }()
	runtime := host.Watch(client, c.process.host(from.Address))
	pipe, err := pipeline.New(c.pipeline.options(runtime, out.log, kept{registry}))
	if err != nil {
		return err
	}
	d := &daemon{out: out, pipe: pipe, command: c}
	defer func() {
		for _, f := range d.close {
			f()
		}
	}()
	if err = cmp.Or(c.publish.addTo(ctx, d, registry), d.addSocket(socket, registry)); err != nil {
		return err
	}
	d.addHTTP(web, registry, client, from.Address)
	d.addHealth(health)
	if silent {
		d.parts = append(d.parts, func(ctx context.Context) error { sayRuntime(ctx, out, client, from); return nil })
	}
	if incidents != nil {
		d.parts = append(d.parts, func(ctx context.Context) error {
			status := func() pleg.Status { s, _ := pipe.Status(ctx); return s }
			return incidents.Run(ctx, status, out.log)
		})
	}
	d.parts = append(d.parts, func(ctx context.Context) error { return runtime.Run(ctx, pipe) })
	if err = d.run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	figures := view.ReadFigures(ctx, pipe, registry)
	out.say(ctx, "%v after %v: %d relists, %d events, %d missed by subscribers", err, time.Since(began).Round(100*time.Millisecond),
		figures.Lister.Lists, figures.Dispatcher.Events, figures.Dispatcher.Missed)
	return nil
}

// connect returns a client of the runtime. If the daemon waits for the runtime, silent means that
// the runtime has not answered yet. The daemon begins anyway, so that its findings count from its
// first list.
func (c *runCommand) connect(ctx context.Context, out console, from endpoint.Endpoint, o cri.Options) (client *cri.Client, silent bool, err error) {
	if !c.runtime.wait {
		client, err = connect(ctx, out, from, o)
		return client, false, err
	}
	if client, err = newRuntimeClient(from, o); err != nil {
		return nil, false, err
	}
	quick, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sayRuntime(quick, out, client, from)
	return client, quick.Err() != nil, nil
}

// sayRuntime prints the version of the runtime, or why the daemon waits for it, unless ctx ends before.
func sayRuntime(ctx context.Context, out console, client *cri.Client, from endpoint.Endpoint) {
	if why, _ := check(ctx, out, client, from); why != "" && ctx.Err() == nil {
		out.say(ctx, "%s; waiting for it", why)
	}
}

// host returns the sources of facts about this node, beside the runtime.
func (p Process) host(endpoint string) host.Options {
	return host.Options{Endpoint: endpoint, Proc: p.Proc, Cgroups: p.Cgroups, Sockets: host.Sockets, Usage: host.Usage}
}

func newRegistry() *prometheus.Registry {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(
		newBuildMetric(),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled(), collectors.WithGoCollectorRuntimeMetrics(liveHeap),
			collectors.WithoutGoCollectorRuntimeMetrics(regexp.MustCompile("^/(sched/gomaxprocs|gc/gogc|gc/gomemlimit):"))),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return registry
}

// addSocket adds the gRPC service, unless the listener is nil.
func (d *daemon) addSocket(l net.Listener, registry *prometheus.Registry) error {
	if l == nil {
		return nil
	}
	o := d.command.server
	o.Logger, o.Registerer = d.out.log, registry
	o.Version = programVersion()
	s, err := server.New(d.pipe, o)
	if err != nil {
		return err
	}
	d.parts = append(d.parts, func(ctx context.Context) error { return s.Serve(ctx, l) })
	return nil
}

// addHTTP adds the HTTP server, unless the listener is nil. It shows the states of the parts that
// were added earlier.
func (d *daemon) addHTTP(l net.Listener, registry *prometheus.Registry, client *cri.Client, address string) {
	if l == nil {
		return
	}
	hour := httpserver.NewHour(d.pipe, registry)
	node, _ := d.command.publish.nodeName(d.command.process) // without a name, the page shows none
	var runtime atomic.Value
	runtime.Store(address)
	handler := httpserver.Handler(httpserver.Options{
		Pipeline: d.pipe, Gatherer: registry, Logger: d.out.log, Address: l.Addr(), WebConfig: d.command.webConfig,
		MaxStreams: d.command.streams, Parts: d.states,
		Hour: hour, Node: node, Runtime: func() string { return runtime.Load().(string) },
	})
	d.parts = append(d.parts, hour.Run,
		func(ctx context.Context) error { return identify(ctx, client, &runtime) },
		func(ctx context.Context) error {
			return httpserver.Serve(ctx, l, handler, d.command.webConfig, d.out.log)
		})
}

// addHealth adds the server for probes, unless the listener is nil.
func (d *daemon) addHealth(l net.Listener) {
	if l == nil {
		return
	}
	handler := httpserver.HealthHandler(httpserver.Options{Pipeline: d.pipe, Parts: d.states, Address: l.Addr()})
	d.parts = append(d.parts, func(ctx context.Context) error { return httpserver.Serve(ctx, l, handler, "", d.out.log) })
}

// identifyPeriod is the time between two questions for the version of the runtime, which an
// update changes.
const identifyPeriod = time.Minute

// identify keeps the name and version of the runtime until ctx ends.
func identify(ctx context.Context, client *cri.Client, name *atomic.Value) error {
	for {
		if version, err := client.Check(ctx); err == nil {
			name.Store(view.Printable(version.RuntimeName + " " + version.RuntimeVersion))
		}
		if backoff.Wait(ctx, identifyPeriod) != nil {
			return nil
		}
	}
}

type daemon struct {
	out     console
	command *runCommand
	pipe    *pipeline.Pipeline
	// parts run beside the pipeline and end with their context.
	parts []func(context.Context) error
	// states are the lines of the parts in /readyz?verbose, close closes their connections.
	states []httpserver.Part
	close  []func()
}

// run ends when ctx ends, the output fails or a part fails, and returns the cause.
// It first prints the events that were published before.
func (d *daemon) run(ctx context.Context) error {
	if !d.command.quiet {
		subscription, err := d.pipe.Subscribe(pleg.SubscribeOptions{Name: "stdout"})
		if err != nil {
			return err
		}
		d.parts = append(d.parts, func(ctx context.Context) error {
			return printing(ctx, d.out, d.command.process.Out, func(ctx context.Context) error { return d.print(ctx, subscription) })
		})
	}
	parts, ctx := errgroup.WithContext(ctx)
	for _, part := range append(d.parts, d.pipe.Run) {
		parts.Go(func() error { return part(ctx) })
	}
	_ = parts.Wait() // the error of a part is already the cause of ctx
	return context.Cause(ctx)
}

func (d *daemon) print(ctx context.Context, subscription pleg.Subscription) error {
	printer := view.EventPrinter(d.command.process.Out, d.command.output.options(d.command.process))
	if err := printer.Start(); err != nil {
		return outputError(err)
	}
	for ev, err := range subscription.All(context.WithoutCancel(ctx)) {
		if err != nil {
			break // everything has been read
		}
		if err := printer.Print(fleet.Event{Event: ev}); err != nil {
			return outputError(err)
		}
	}
	return nil
}
