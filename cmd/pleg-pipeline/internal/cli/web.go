package cli

import (
	"context"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/httpserver"
)

// listenHTTP returns nil if --listen is not given.
func (c *runCommand) listenHTTP(ctx context.Context, out console) (net.Listener, error) {
	if c.listenAddress == "" {
		return nil, nil
	}
	if err := httpserver.CheckWebConfig(c.webConfig); err != nil {
		return nil, fmt.Errorf("--web-config: %w", err)
	}
	listener, err := httpserver.Listen(ctx, c.listenAddress)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	scheme := "http"
	if c.webConfig != "" {
		scheme = "http(s)"
	}
	if httpserver.HidePods(listener.Addr(), c.webConfig) != nil {
		out.say(ctx, "metrics and health are served on %s://%v; pods and events are not, since others can reach it: see --web-config", scheme, listener.Addr())
	} else {
		out.say(ctx, "metrics, health, pods and events are served on %s://%v", scheme, listener.Addr())
	}
	return listener, nil
}

func (c *runCommand) serveHTTP(l net.Listener, pipe *pipeline.Pipeline, registry *prometheus.Registry, out console) func(context.Context) error {
	address := l.Addr()
	hide := func() error { return httpserver.HidePods(address, c.webConfig) }
	return func(ctx context.Context) error {
		handler := httpserver.Handler(httpserver.Options{
			Pipeline: pipe, Gatherer: registry, HidePods: hide, Logger: out.log,
		})
		return httpserver.Serve(ctx, l, handler, c.webConfig, out.log)
	}
}
