package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Defaults of [ExporterOptions].
const (
	DefaultServiceName   = "pleg-pipeline"
	DefaultMaxBatch      = 512
	DefaultMaxBatchBytes = 1 << 20
	DefaultExportTimeout = 10 * time.Second
	DefaultMinBackoff    = 500 * time.Millisecond
	DefaultMaxBackoff    = 15 * time.Second
)

// ExporterOptions configure an [Exporter]. Conn, Source and Node are required.
type ExporterOptions struct {
	// Conn is the connection to the receiver; see [Dial]. The exporter does not close it.
	Conn grpc.ClientConnInterface
	// Source is where the events come from.
	Source Source
	// Node becomes the attribute k8s.node.name, Cluster, if it is not empty,
	// k8s.cluster.name.
	Node, Cluster string
	// ServiceName and ServiceVersion become service.name and service.version. If
	// ServiceName is empty, [DefaultServiceName].
	ServiceName, ServiceVersion string
	// MaxBatch is the largest number of records in a request, MaxBatchBytes their
	// largest size. A single record that is larger goes alone. If zero,
	// [DefaultMaxBatch] and [DefaultMaxBatchBytes].
	MaxBatch, MaxBatchBytes int
	// ExportTimeout is the time in which the receiver must answer a request. If zero,
	// [DefaultExportTimeout].
	ExportTimeout time.Duration
	// MinBackoff and MaxBackoff are the shortest and the longest time until the
	// exporter begins again after an error, unless the receiver asks for a longer one.
	// The time doubles with each error, and half of it is random. If zero,
	// [DefaultMinBackoff] and [DefaultMaxBackoff].
	MinBackoff, MaxBackoff time.Duration
	// Logger logs when exporting stops and works again. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer registers the metrics pleg_otlp_…. If nil, they are not registered.
	Registerer prometheus.Registerer
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
	if err := errors.Join(
		option.Default("MaxBatch", &o.MaxBatch, DefaultMaxBatch),
		option.Default("MaxBatchBytes", &o.MaxBatchBytes, DefaultMaxBatchBytes),
		option.Default("ExportTimeout", &o.ExportTimeout, DefaultExportTimeout),
		option.Default("MinBackoff", &o.MinBackoff, DefaultMinBackoff),
		option.Default("MaxBackoff", &o.MaxBackoff, max(DefaultMaxBackoff, o.MinBackoff)),
	); err != nil {
		return err
	}
	if o.MinBackoff > o.MaxBackoff {
		return fmt.Errorf("ExporterOptions.MinBackoff must not exceed MaxBackoff, got %v and %v", o.MinBackoff, o.MaxBackoff)
	}
	o.ServiceName = cmp.Or(o.ServiceName, DefaultServiceName)
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
	running  atomic.Bool
	// lastAck is when the receiver last answered that it has a request.
	lastAck atomic.Pointer[time.Time]
	// waiting is the time of the oldest event that waits for its acknowledgement; nil if
	// none does.
	waiting atomic.Pointer[time.Time]

	// Run owns the fields below. They outlive a session.

	// acked is the position after which the next session begins.
	acked pleg.Position
	// owesSynced is true from a Gap until the end of the replay that follows it.
	owesSynced bool
	// backoff is the next wait, before its random part. logged is the last error, if
	// nothing was accepted since, and warned the last warning of the receiver.
	backoff        time.Duration
	logged, warned string
}

// noEpoch is the epoch of no pipeline: who resumes there gets a Gap and a replay.
const noEpoch = "none"

// NewExporter returns an exporter that does not run yet. The error names the bad option.
func NewExporter(o ExporterOptions) (*Exporter, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new exporter: %w", err)
	}
	e := &Exporter{
		o: o, client: collogsv1.NewLogsServiceClient(o.Conn), resource: newResource(&o),
		log: o.Logger.With("stage", "otlp"), acked: pleg.Position{Epoch: noEpoch}, backoff: o.MinBackoff,
	}
	e.acknowledged()
	var err error
	e.metrics, err = newMetrics(o.Registerer, age(&e.lastAck), age(&e.waiting))
	if err != nil {
		return nil, fmt.Errorf("new exporter: %w", err)
	}
	return e, nil
}

// age returns a function for the seconds since a time; 0 if there is none.
func age(at *atomic.Pointer[time.Time]) func() float64 {
	return func() float64 {
		if t := at.Load(); t != nil {
			return time.Since(*t).Seconds()
		}
		return 0
	}
}

func (e *Exporter) acknowledged() {
	now := time.Now()
	e.lastAck.Store(&now)
}

var (
	errSourceEnded = errors.New("there are no more events")
	// errOverrun means that the source discarded events because the receiver is slow.
	// They are still in its history.
	errOverrun = errors.New("the receiver is slower than the events")
	errHole    = errors.New("the source left out events")
)

// Run exports until ctx or the source ends. In the first case it returns the cause of
// ctx. Errors of the receiver are retried with backoff or counted; Run returns none. An
// exporter runs once; a second call is an error.
func (e *Exporter) Run(ctx context.Context) error {
	if e.running.Swap(true) {
		return errors.New("run exporter: it has already run: create a new one")
	}
	for {
		err := e.session(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errSourceEnded) {
			return nil
		}
		e.metrics.retries.Inc()
		if err := e.pause(ctx, err); err != nil {
			return err
		}
	}
}

// pause logs an error, unless it is the same as the last one, and waits with backoff, or as
// long as the receiver asks for.
func (e *Exporter) pause(ctx context.Context, err error) error {
	wait := max(e.backoff/2+rand.N(e.backoff/2+1), askedFor(err))
	e.backoff = min(2*e.backoff, e.o.MaxBackoff)
	if text := err.Error(); text != e.logged {
		e.logged = text
		e.log.WarnContext(ctx, "cannot export events", "err", err, "retryIn", wait)
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recovered notes that the receiver has accepted something.
func (e *Exporter) recovered(ctx context.Context) {
	if e.logged != "" {
		e.log.InfoContext(ctx, "exporting again")
	}
	e.backoff, e.logged = e.o.MinBackoff, ""
}

// eventBuffer is the number of events that wait behind the request in flight before the
// source has to wait too.
const eventBuffer = 256

// session exports until an error occurs. While the exporter waits for the next session, it
// does not subscribe: what happens meanwhile waits in the history.
func (e *Exporter) session(ctx context.Context) error {
	events := make(chan pleg.Event, eventBuffer)
	s := &session{e: e, position: e.acked, owesSynced: e.owesSynced}
	after := e.acked
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := e.o.Source.Follow(ctx, after, events); err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		close(events) // only now: an error must not look like the end
		return nil
	})
	group.Go(func() error { return s.run(ctx, events) })
	return group.Wait()
}
