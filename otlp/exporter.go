package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxBatch is the largest number of records in a request, maxBatchBytes their largest size, a
// quarter of what a gRPC server accepts by default. A single record that is larger goes alone.
const maxBatch, maxBatchBytes = 512, 1 << 20

// exportTimeout is the time in which the receiver must answer a request.
const exportTimeout = 10 * time.Second

// minBackoff and maxBackoff are the shortest and the longest time until the exporter begins
// again after an error, unless the receiver asks for a longer one. The time doubles with each
// error, and half of it is random.
const minBackoff, maxBackoff = 500 * time.Millisecond, 15 * time.Second

// ExporterOptions configure an [Exporter]. Conn, Source and Node are required.
type ExporterOptions struct {
	// Conn is the connection to the receiver; see [Dial]. The exporter does not close it.
	Conn grpc.ClientConnInterface
	// Source is where the events come from.
	Source Source
	// Node becomes the attribute k8s.node.name, Cluster, if it is not empty,
	// k8s.cluster.name.
	Node, Cluster string
	// ServiceVersion becomes service.version.
	ServiceVersion string
	// Logger logs when exporting stops and works again. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer registers the metrics pleg_otlp_…. If nil, they are not registered.
	Registerer prometheus.Registerer

	maxBatch, maxBatchBytes int // only tests set them
}

func (o *ExporterOptions) complete() error {
	switch {
	case o.Conn == nil:
		return errors.New("ExporterOptions.Conn must not be nil")
	case o.Source == nil:
		return errors.New("ExporterOptions.Source must not be nil")
	case o.Node == "":
		return errors.New("ExporterOptions.Node must not be empty")
	}
	o.maxBatch, o.maxBatchBytes = cmp.Or(o.maxBatch, maxBatch), cmp.Or(o.maxBatchBytes, maxBatchBytes)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Exporter exports the events of one node. Create it with [NewExporter].
type Exporter struct {
	o        ExporterOptions
	client   collogsv1.LogsServiceClient
	resource *resourcev1.Resource
	log      *slog.Logger
	metrics  *metrics
	loop     exporter.Loop
	// waiting is the time of the oldest event that waits for its acknowledgement; nil if
	// none does.
	waiting atomic.Pointer[time.Time]

	// Run owns the fields below. They outlive a session.

	// acked is the position after which the next session begins.
	acked pleg.Position
	// owesSynced is true from a Gap until the end of the replay that follows it.
	owesSynced bool
	// warned is the last warning of the receiver.
	warned string
}

// noEpoch is the epoch of no pipeline: a subscriber that resumes there gets a Gap and a replay.
const noEpoch = "none"

// NewExporter returns an exporter that does not run yet. The error names the bad option.
func NewExporter(o ExporterOptions) (*Exporter, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new exporter: %w", option.Invalid(err))
	}
	e := &Exporter{
		o: o, client: collogsv1.NewLogsServiceClient(o.Conn), resource: newResource(&o),
		log: o.Logger.With("stage", "otlp"), acked: pleg.Position{Epoch: noEpoch},
	}
	e.loop.Log, e.loop.Failed, e.loop.Recovered = e.log, "cannot export events", "exporting again"
	e.loop.Backoff = backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	e.loop.Count = func(err error) time.Duration {
		e.metrics.retries.Inc()
		return askedFor(err)
	}
	e.loop.Acknowledged()
	ackAge := func() float64 {
		at, _ := e.loop.Status()
		return age(&at)
	}
	var err error
	e.metrics, err = newMetrics(o.Registerer, ackAge, func() float64 { return age(e.waiting.Load()) })
	if err != nil {
		return nil, fmt.Errorf("new exporter: %w", err)
	}
	return e, nil
}

// age returns the seconds since a time; 0 if there is none.
func age(at *time.Time) float64 {
	if at == nil {
		return 0
	}
	return time.Since(*at).Seconds()
}

// Run exports until ctx or the source ends. In the first case it returns the cause of
// ctx. Errors of the receiver are retried with backoff or counted; Run returns none. An
// exporter runs once; a second call is an error.
func (e *Exporter) Run(ctx context.Context) error { return e.loop.Run(ctx, e.session) }

// session exports until an error occurs. While the exporter waits for the next session, it
// does not subscribe: what happens meanwhile waits in the history.
func (e *Exporter) session(ctx context.Context) error {
	s := &session{e: e, position: e.acked, owesSynced: e.owesSynced}
	after := e.acked
	follow := func(ctx context.Context, events chan<- pleg.Event) error {
		return e.o.Source.Follow(ctx, &after, events)
	}
	return exporter.Session(ctx, follow, s.run)
}
