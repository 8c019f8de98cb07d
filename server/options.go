package server

import (
	"cmp"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

// Defaults of [Options].
const (
	DefaultMaxConnections = 1024
	DefaultMaxStreams     = 64
	DefaultMaxWatchers    = 1024
	DefaultMaxCalls       = 512
	DefaultKeepalive      = 30 * time.Second
)

// maxRequestBytes is the greatest size of a request: a filter with some thousand names.
const maxRequestBytes = 64 << 10

// grace is the time in which connections must end when the server ends: clients that read need
// milliseconds.
const grace = time.Second

// Options configure a [Server]. The zero value is ready to use. A negative number is an error.
type Options struct {
	// MaxConnections is the greatest number of connections at the same time. If
	// zero, [DefaultMaxConnections].
	MaxConnections int
	// MaxStreams is the greatest number of calls on one connection at the same
	// time; a gRPC client delays further calls. If zero, [DefaultMaxStreams].
	MaxStreams int
	// MaxWatchers is the greatest number of Watch calls on all connections at the same
	// time. If zero, [DefaultMaxWatchers].
	MaxWatchers int
	// MaxCalls is the greatest number of calls of all other methods on all connections at the same
	// time, except calls of the health service. Calls of GetPodStatus and Lookup may wait, and
	// count while they do. If zero, [DefaultMaxCalls].
	MaxCalls int
	// Keepalive is the time without data after which the server pings a client,
	// and also the time in which the client must answer. If zero,
	// [DefaultKeepalive]; if negative, the server never pings.
	Keepalive time.Duration
	// Version is the version of the program in the answer of GetStatus. If empty, GetStatus reports
	// none.
	Version string
	// Logger logs when the server starts and stops. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics in New, until the last running Serve returns, or Close. If nil, they
	// are not registered.
	Registerer prometheus.Registerer
}

func (o *Options) complete() error {
	if err := cmp.Or(
		option.Default("MaxConnections", &o.MaxConnections, DefaultMaxConnections),
		option.Default("MaxStreams", &o.MaxStreams, DefaultMaxStreams),
		option.Default("MaxWatchers", &o.MaxWatchers, DefaultMaxWatchers),
		option.Default("MaxCalls", &o.MaxCalls, DefaultMaxCalls),
	); err != nil {
		return err
	}
	option.OffOrDefault(&o.Keepalive, DefaultKeepalive, math.MaxInt64)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

type metrics struct {
	connections, watchers prometheus.Gauge

	refusedConnections, refusedWatchers, refusedCalls prometheus.Counter

	set *instrument.Set
	// serving is the number of calls of Serve, served whether there was one.
	serving atomic.Int64
	served  atomic.Bool
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	set := instrument.Registry{Registerer: reg}.NewSet()
	refused := set.CounterVec("pleg_server_refused_total", "Connections, watchers and other calls refused because there were too many.", "what")
	return &metrics{
		connections:        set.Gauge("pleg_server_connections", "Current connections to the gRPC service."),
		watchers:           set.Gauge("pleg_server_watchers", "Current Watch calls."),
		refusedConnections: refused.WithLabelValues("connection"),
		refusedWatchers:    refused.WithLabelValues("watcher"),
		refusedCalls:       refused.WithLabelValues("call"),
		set:                set,
	}, set.Register()
}

// enter is called when Serve begins.
func (m *metrics) enter() {
	m.served.Store(true)
	m.serving.Add(1)
}

// close unregisters the metrics of a server that has never served.
func (m *metrics) close() {
	if !m.served.Swap(true) {
		m.set.Unregister()
	}
}

// leave is called when Serve returns. The last one unregisters the metrics, so that another
// server can use the registerer.
func (m *metrics) leave() {
	if m.serving.Add(-1) == 0 {
		m.set.Unregister()
	}
}
