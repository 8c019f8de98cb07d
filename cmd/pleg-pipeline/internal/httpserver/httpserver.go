// Package httpserver serves a pipeline over HTTP.
//
//	/metrics     Prometheus metrics
//	/livez       200 while the process serves; it does not depend on the runtime,
//	             since restarting this process would not cure the runtime
//	/readyz      200 while the list of pods is fresh and the inspections keep up,
//	             otherwise 503
//	/pods        what is known of every pod, as one JSON object
//	/pods/{uid}  the same of one pod
//	/events      server-sent events, with Last-Event-ID to resume
//
// Both health paths answer "ok", or with ?verbose one line for each check, in
// the form of the Kubernetes API server.
//
// # Bounds
//
// Connections, event streams, headers and the time for a request are bounded.
// What is over a bound is refused with 503 and a text that names it. A client
// that does not read its stream costs only itself: it is a subscriber of the
// pipeline, and loses its connection after half a minute.
package httpserver

import (
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

// Defaults of [Options].
const (
	// DefaultMaxBacklog leaves room for some pods that hang, which are their own
	// trouble and not the node's.
	DefaultMaxBacklog = 10
	// DefaultBacklogAfter is longer than a relist and the inspections of a
	// burst take on a runtime that is well.
	DefaultBacklogAfter = 30 * time.Second
	// DefaultMaxStreams is the number of event streams at a time.
	DefaultMaxStreams = 64
	// maxRequests is the number of answers with metrics, and of those with pods,
	// that are made at a time: each may be large.
	maxRequests = 16
)

// Options configure a [Handler]. Those without a default are required.
type Options struct {
	// Pipeline is what is served.
	Pipeline *pipeline.Pipeline
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// MaxBacklog is the number of pods that may wait for their inspection for
	// longer than BacklogAfter before /readyz fails. If zero,
	// [DefaultMaxBacklog] and [DefaultBacklogAfter].
	MaxBacklog   int
	BacklogAfter time.Duration
	// MaxStreams bounds the clients of /events. If zero, [DefaultMaxStreams].
	MaxStreams int
	// HidePods returns why nothing may be served that names a pod, and nil if it
	// may. It is asked for each request, as what it depends on may change. If
	// nil, it may.
	HidePods func() error
	// Logger hears of metrics that could not be gathered.
	Logger *slog.Logger
}

func (o *Options) complete() {
	if o.MaxBacklog == 0 {
		o.MaxBacklog = DefaultMaxBacklog
	}
	if o.BacklogAfter == 0 {
		o.BacklogAfter = DefaultBacklogAfter
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = DefaultMaxStreams
	}
}

// Handler returns the handler of all paths.
func Handler(o Options) http.Handler {
	o.complete()
	ping := check{"ping", func(*http.Request) (string, error) { return "", nil }}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", limit(maxRequests, promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})))
	mux.Handle("GET /livez", checks{"livez", []check{ping}})
	mux.Handle("GET /readyz", checks{"readyz", []check{ping, o.list(), o.inspections(), o.quarantine()}})
	pods := pods{o.Pipeline}
	podMux := http.NewServeMux()
	podMux.HandleFunc("GET /pods", pods.all)
	podMux.HandleFunc("GET /pods/{uid...}", pods.one)
	guarded := limit(maxRequests, o.guard(podMux))
	mux.Handle("GET /pods", guarded)
	mux.Handle("GET /pods/{uid...}", guarded)
	mux.Handle("GET /events", o.guard(&events{pipe: o.Pipeline, slots: make(chan struct{}, o.MaxStreams)}))
	return mux
}

// hidden returns why the client may not see what names a pod, or nil.
func (o *Options) hidden(r *http.Request) error {
	if rebound(r) {
		return fmt.Errorf("pods are not shown under the name %q: ask for localhost or for the address", r.Host)
	}
	if o.HidePods == nil {
		return nil
	}
	return o.HidePods()
}

// guard keeps what names pods from those who may not see them.
func (o *Options) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := o.hidden(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// limit lets a bounded number of requests be answered at a time.
func limit(n int, h http.Handler) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			unavailable(w, fmt.Sprintf("too many requests: %d at a time", n))
		}
	})
}
