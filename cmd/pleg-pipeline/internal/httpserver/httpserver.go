// Package httpserver serves a pipeline over HTTP.
//
//	/metrics     Prometheus metrics
//	/livez       200 while the process serves; independent of the runtime, because
//	             a restart of this process would not repair the runtime
//	/readyz      200 while the list of pods is fresh and the inspections keep up,
//	             otherwise 503
//	/            a page that shows all of this in a browser
//	/stages      the figures of each stage
//	/hour        figures of the last hour
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
// limit of requests the server answers with 503 and names the limit, except for the health
// paths; more connections wait. [HealthHandler] on a listener of its own answers
// probes meanwhile. A client that does not read its event stream affects nobody else: it is
// a subscriber of the pipeline, and loses its connection after half a minute.
package httpserver

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
)

const (
	// DefaultMaxStreams is the greatest number of event streams at the same time.
	DefaultMaxStreams = 64
	// MaxStreams is the greatest number that can be asked for: half of the connections,
	// so that there is room for other requests.
	MaxStreams = maxConnections / 2
)

// Options configure a [Handler]. Options without a default are required.
type Options struct {
	// Pipeline is the pipeline to serve.
	Pipeline *pipeline.Pipeline
	// Gatherer returns the metrics.
	Gatherer prometheus.Gatherer
	// MaxStreams is the greatest number of clients of /events. If zero, [DefaultMaxStreams].
	MaxStreams int
	// Address is the address of the listener, and WebConfig the path that [Serve] gets. If other
	// machines can reach the address, only clients that the web configuration authenticates see
	// pods. If nil, everybody sees them.
	Address   net.Addr
	WebConfig string
	// Logger logs errors of the Gatherer.
	Logger *slog.Logger
	// Hour contains the figures of the last hour. If nil, there are none.
	Hour *Hour
	// Node is the name of the node, and Runtime returns the name and version of its runtime, or
	// its address. Each may be missing.
	Node    string
	Runtime func() string
	// Parts are the tasks beside the pipeline. They get lines in /readyz?verbose, but do not make
	// the node unready.
	Parts []Part
}

// Part is a task beside the pipeline, such as a publisher.
type Part struct {
	Name string
	// State returns a line for people. It can name pods and servers, so it is shown only to
	// clients that may see pods.
	State func() string
}

// Handler returns the handler of all paths.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	o.addHealth(mux)
	mux.Handle("GET /metrics", limitRate(o.metrics()))
	pods := pods{o.Pipeline}
	podMux := http.NewServeMux()
	podMux.HandleFunc("GET /pods", pods.all)
	podMux.HandleFunc("GET /pods/{uid...}", pods.one)
	podMux.Handle("GET /stages", stages{&o})
	podMux.Handle("GET /hour", cmp.Or(o.Hour, NewHour(o.Pipeline, o.Gatherer)))
	guarded := o.guard(limitRate(podMux))
	mux.Handle("GET /pods", guarded)
	mux.Handle("GET /pods/{uid...}", guarded)
	mux.Handle("GET /stages", guarded)
	mux.Handle("GET /hour", guarded)
	streams := limit(cmp.Or(o.MaxStreams, DefaultMaxStreams), 0, "event streams", events{&o})
	mux.Handle("GET /events", o.guard(streams))
	files := o.guard(limit(maxPageRequests, maxWait, "requests", http.HandlerFunc(servePage)))
	mux.Handle("GET /{$}", files)
	mux.Handle("GET /page/{file}", files)
	return mux
}
