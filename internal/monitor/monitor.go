// Package monitor serves a pipeline's metrics and health over HTTP.
//
//	/metrics  Prometheus metrics
//	/livez    200 while the process serves; it does not depend on the runtime,
//	          since restarting this process would not cure the runtime
//	/readyz   200 while the pipeline sees the runtime, otherwise 503
//
// Both health paths answer "ok", or with ?verbose one line for each check, in
// the form of the Kubernetes API server.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// shutdownTimeout lets a scrape that is under way end.
const shutdownTimeout = time.Second

// Options configure a [Handler]. All fields are required.
type Options struct {
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// Healthy says whether the pipeline sees the runtime, and if not, why. It
	// must not block.
	Healthy func() (bool, error)
	// Logger hears of metrics that could not be gathered.
	Logger *slog.Logger
}

// Handler returns the handler of all paths.
func Handler(o Options) http.Handler {
	ping := check{"ping", func() error { return nil }}
	pleg := check{"pleg", func() error {
		if healthy, err := o.Healthy(); !healthy {
			return err
		}
		return nil
	}}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.Handle("GET /livez", checks{"livez", []check{ping}})
	mux.Handle("GET /readyz", checks{"readyz", []check{ping, pleg}})
	return mux
}

// Listen listens on an address of [ParseAddress].
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", address)
}

// Serve serves handler on l, which it closes, until ctx ends; requests under
// way get a second to end. It returns nil then, and an error if l breaks.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, logger *slog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(l)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
}
