// Package httpserver serves a pipeline over HTTP.
//
//	/metrics     Prometheus metrics
//	/livez       200 while the process serves; independent of the runtime, because
//	             a restart of this process would not repair the runtime
//	/readyz      200 while the list of pods is fresh and the inspections keep up,
//	             otherwise 503
//	/pods        the state of every pod, as one JSON object
//	/pods/{uid}  the state of one pod
//	/events      server-sent events, with Last-Event-ID to resume
//
// Both health paths answer "ok", or with ?verbose one line per check, in the format of
// the Kubernetes API server.
//
// # Bounds
//
// Connections, event streams, headers and the time of a request are limited. Above a
// limit the server answers with 503 and names the limit. A client that does not read
// its event stream affects nobody else: it is a subscriber of the pipeline, and loses
// its connection after half a minute.
package httpserver

import (
	"cmp"
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
	// DefaultMaxBacklog allows for some pods whose inspections hang: they do not
	// make the node unready.
	DefaultMaxBacklog = 10
	// DefaultBacklogAfter is longer than a relist and the inspections of a burst
	// take on a healthy runtime.
	DefaultBacklogAfter = 30 * time.Second
	// DefaultMaxStreams is the greatest number of event streams at the same time.
	DefaultMaxStreams = 64
	// maxRequests is the greatest number of requests for metrics, and for pods, at
	// the same time. Their answers can be large.
	maxRequests = 16
)

// Options configure a [Handler]. Those without a default are required.
type Options struct {
	// Pipeline is the pipeline to serve.
	Pipeline *pipeline.Pipeline
	// Gatherer has the metrics.
	Gatherer prometheus.Gatherer
	// MaxBacklog is the number of pods that may wait for their inspection for
	// longer than BacklogAfter before /readyz fails. If zero,
	// [DefaultMaxBacklog] and [DefaultBacklogAfter].
	MaxBacklog   int
	BacklogAfter time.Duration
	// MaxStreams is the greatest number of clients of /events. If zero,
	// [DefaultMaxStreams].
	MaxStreams int
	// HidePods returns an error if answers must not name pods. It is called for
	// each request, because the configuration can change. If nil, answers can name
	// pods.
	HidePods func() error
	// Logger logs errors of the Gatherer.
	Logger *slog.Logger
}

func (o *Options) complete() {
	o.MaxBacklog = cmp.Or(o.MaxBacklog, DefaultMaxBacklog)
	o.BacklogAfter = cmp.Or(o.BacklogAfter, DefaultBacklogAfter)
	o.MaxStreams = cmp.Or(o.MaxStreams, DefaultMaxStreams)
}

// Handler returns the handler of all paths.
func Handler(o Options) http.Handler {
	o.complete()
	ping := check{"ping", func(*http.Request) (string, error) { return "", nil }}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", limit(maxRequests, "requests", promhttp.HandlerFor(o.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      slog.NewLogLogger(o.Logger.Handler(), slog.LevelError),
		ErrorHandling: promhttp.ContinueOnError,
	})))
	mux.Handle("GET /livez", checks{"livez", []check{ping}})
	mux.Handle("GET /readyz", checks{"readyz", []check{ping, o.list(), o.inspections(), o.quarantine()}})
	pods := pods{o.Pipeline}
	podMux := http.NewServeMux()
	podMux.HandleFunc("GET /pods", pods.all)
	podMux.HandleFunc("GET /pods/{uid...}", pods.one)
	guarded := limit(maxRequests, "requests", o.guard(podMux))
	mux.Handle("GET /pods", guarded)
	mux.Handle("GET /pods/{uid...}", guarded)
	mux.Handle("GET /events", o.guard(limit(o.MaxStreams, "event streams", &events{o.Pipeline})))
	return mux
}

// hidden returns an error if the client must not see pods.
func (o *Options) hidden(r *http.Request) error {
	if isRebound(r) {
		return fmt.Errorf("pods are not served under the host name %q: use localhost or an IP address", r.Host)
	}
	if o.HidePods == nil {
		return nil
	}
	return o.HidePods()
}

// guard refuses requests of clients that must not see pods.
func (o *Options) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := o.hidden(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// limit lets h answer at most n requests at the same time. It refuses others, which it
// calls what.
func limit(n int, what string, h http.Handler) http.Handler {
	slots := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			h.ServeHTTP(w, r)
		default:
			unavailable(w, fmt.Sprintf("too many %s: %d at a time", what, n))
		}
	})
}
