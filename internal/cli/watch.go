package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/internal/monitor"
	"github.com/pleg-pipeline/pleg-pipeline/internal/printer"
)

// watch prints the events of one runtime until ctx ends, and then a summary.
func (c *runCommand) watch(ctx context.Context, out console, from endpoint.Endpoint) error {
	began := time.Now()
	listener, err := c.listenHTTP(ctx, out)
	if err != nil {
		return err
	}
	if listener != nil {
		defer func() { _ = listener.Close() }() // Serve closes it too; this is for the ways out before.
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	client, err := c.connect(ctx, out, from, registry)
	if err != nil && ctx.Err() != nil {
		out.say(ctx, "%v before the runtime had answered", context.Cause(ctx))
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	events, err := printer.New(c.process.Out, printer.Options{
		Format:  printer.Format(c.output),
		Headers: !c.noHeaders,
		Color:   colorWanted(c.process.Out, c.process.Getenv),
	})
	if err != nil {
		return err
	}
	pipe, err := pipeline.New(c.pipelineOptions(client, out, registry))
	if err != nil {
		return err
	}
	w := watcher{out: out, pipe: pipe, printer: events, stdout: c.process.Out, listener: listener, registry: registry}
	err = w.run(ctx)
	if errors.Is(err, context.Canceled) {
		out.say(ctx, "%v", summary{err, time.Since(began), registry, w.printed})
		return nil
	}
	return err
}

// listenHTTP listens before anything else is tried, so that a bad address is
// told at once; nil if --listen is not given.
func (c *runCommand) listenHTTP(ctx context.Context, out console) (net.Listener, error) {
	if c.listenAddress == "" {
		return nil, nil
	}
	listener, err := monitor.Listen(ctx, c.listenAddress)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	out.say(ctx, "metrics and health are served on http://%v", listener.Addr())
	return listener, nil
}

func (c *runCommand) connect(ctx context.Context, out console, from endpoint.Endpoint, registry prometheus.Registerer) (*cri.Client, error) {
	client, err := cri.New(from.Address, cri.Options{
		ListTimeout:        c.listTimeout,
		StatusTimeout:      c.inspectTimeout,
		MaxStatusCalls:     c.maxStatusCalls,
		Logger:             out.log,
		Registerer:         registry,
		KubeletMetricNames: c.kubeletNames,
	})
	if err != nil {
		return nil, fmt.Errorf("%w (from %s)", err, from.Source)
	}
	version, err := client.Check(ctx)
	if err != nil {
		return nil, errors.Join(unusable(err, from), client.Close())
	}
	out.say(ctx, "connected to %s %s at %s", version.RuntimeName, version.RuntimeVersion, from.Address)
	return client, nil
}

func (c *runCommand) pipelineOptions(client *cri.Client, out console, registry prometheus.Registerer) pipeline.Options {
	return pipeline.Options{
		Runtime:            client,
		RelistPeriod:       c.relistPeriod,
		RelistThreshold:    c.relistThreshold,
		ListTimeout:        c.listTimeout,
		Inspectors:         c.inspectors,
		InspectTimeout:     c.inspectTimeout,
		Logger:             out.log,
		Registerer:         registry,
		KubeletMetricNames: c.kubeletNames,
	}
}
