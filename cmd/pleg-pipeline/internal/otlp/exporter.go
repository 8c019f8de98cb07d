package otlp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// minBackoff and maxBackoff are the shortest and the longest time until a request is repeated
// after an error. The time grows with each error, and a part of it is random.
const minBackoff, maxBackoff = 500 * time.Millisecond, 15 * time.Second

// maxBatch is the largest number of records in a request.
const maxBatch = 256

// ExporterOptions configure an [Exporter]. Client and Source are required.
type ExporterOptions struct {
	// Client sends the records; see [NewClient]. The exporter does not shut it down.
	Client sdklog.Exporter
	// Source is the pipeline of this process or the daemon of this node.
	Source node.Pipeline
	// Resource is common to all records, such as k8s.node.name.
	// OTEL_RESOURCE_ATTRIBUTES adds attributes.
	Resource *resource.Resource
	// Logger logs when exporting stops and works again. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics pleg_otlp_… until Run returns. If nil, they are not registered.
	Registerer prometheus.Registerer
}

// Exporter exports the events of one node. Create it with [NewExporter].
type Exporter struct {
	client sdklog.Exporter
	source node.Pipeline
	loop   exporter.Loop

	exported, rejected prometheus.Counter
	lag                prometheus.Histogram

	// Run owns the fields below.
	// logger adds records to batch, which become the next request.
	logger log.Logger
	batch  batch
	// acked is the position after which the next session begins, and position is the position of
	// the last event in the batch. At first, both are of no pipeline, so that a Gap and the present
	// state come.
	acked, position pleg.Position
	// replaying is true from a Gap to Synced. The position does not change meanwhile, so that
	// an interrupted replay begins again.
	replaying bool
}

// NewExporter returns an exporter that does not run yet. The error names the bad option.
func NewExporter(o ExporterOptions) (*Exporter, error) {
	if o.Client == nil || o.Source == nil {
		return nil, option.Invalid(errors.New("new exporter: ExporterOptions.Client and Source must not be nil"))
	}
	s := instrument.Registry{Registerer: o.Registerer}.NewSet()
	retries := s.Counter("pleg_otlp_retries_total", "Times that exporting began again after an error.")
	e := &Exporter{
		client: o.Client, source: o.Source, acked: pleg.Position{Epoch: "none"},
		exported: s.Counter("pleg_otlp_exported_records_total", "Log records in requests that the OTLP receiver has accepted."),
		rejected: s.Counter("pleg_otlp_rejected_requests_total", "Requests that the OTLP receiver has rejected, or accepted only in part. They are not sent again."),
		lag:      s.Histogram("pleg_otlp_lag_seconds", "Time from the observation of an event to the answer of the OTLP receiver.", instrument.LagBuckets),
		loop: exporter.Loop{
			Log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)).With("stage", "otlp"), Failed: "cannot export events", Recovered: "exporting again",
			Backoff: backoff.Backoff{Min: minBackoff, Max: maxBackoff},
			Count:   func(error) time.Duration { retries.Inc(); return 0 },
			Ended:   s.Unregister,
		},
	}
	if err := s.Register(); err != nil {
		return nil, fmt.Errorf("new exporter: %w", err)
	}
	e.loop.Acknowledged()
	e.logger = sdklog.NewLoggerProvider(
		sdklog.WithProcessor(&e.batch), sdklog.WithResource(o.Resource),
		// No variable of the environment removes the attributes that identify a record.
		sdklog.WithAttributeCountLimit(-1), sdklog.WithAttributeValueLengthLimit(-1),
		// The schema defines the attributes without the prefix "pleg.".
	).Logger("github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp", log.WithSchemaURL("https://opentelemetry.io/schemas/1.37.0"))
	return e, nil
}

// batch is a processor of the SDK that keeps the records of the next request. Of its methods only
// OnEmit is ever called.
type batch struct {
	sdklog.Processor

	records []sdklog.Record
}

// OnEmit implements [sdklog.Processor].
func (b *batch) OnEmit(_ context.Context, r *sdklog.Record) error {
	b.records = append(b.records, r.Clone())
	return nil
}

// Status returns the time at which the receiver last accepted a request, or at which the exporter
// was made, and the error of the last request; nil if that was accepted. It is safe for concurrent
// use.
func (e *Exporter) Status() (lastAck time.Time, err error) { return e.loop.Status() }

// Run exports until ctx or the source ends, and then returns nil. Errors of the receiver are
// retried with backoff or counted; Run returns none. An exporter runs once; a second call is an
// error.
func (e *Exporter) Run(ctx context.Context) error { return e.loop.Run(ctx, e.session) }

// session exports until an error occurs. While the exporter waits for the next session, it does not
// subscribe: events wait in the history.
func (e *Exporter) session(ctx context.Context) error {
	e.batch.records, e.position, e.replaying = nil, e.acked, false
	return exporter.Session(ctx, e.source, pleg.SubscribeOptions{Name: "otlp", After: e.acked}, e.exportAll)
}

// exportAll exports the events until an error occurs or the channel is closed.
func (e *Exporter) exportAll(ctx context.Context, events <-chan pleg.Event) error {
	for {
		if n := len(e.batch.records); n == maxBatch || n > 0 && len(events) == 0 {
			if err := e.flush(ctx); err != nil {
				return err
			}
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return exporter.ErrSourceEnded
			}
			if err := e.accept(ctx, &ev); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// accept adds an event to the batch. An error ends the session.
func (e *Exporter) accept(ctx context.Context, ev *pleg.Event) error {
	switch {
	case ev.Type == pleg.Bookmark, ev.Type == pleg.Synced && !e.replaying:
		return nil
	case ev.Type == pleg.Gap:
		e.replaying = ev.Reason != pleg.Stopped
	case ev.Type == pleg.Synced:
		e.replaying = false
	case !e.replaying:
		if isNew, hole := exporter.IsNew(ev, e.position); !isNew {
			return hole
		}
	}
	if !e.replaying && ev.Type != pleg.Gap {
		e.position = pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	}
	e.logger.Emit(ctx, newRecord(ev))
	return nil
}

// flush exports the batch, which the client tries for a minute. The exporter moves on once the
// receiver has accepted or rejected it. After a rejection flush waits, because the receiver may
// reject the next batch, too: the later events are safe in the history.
func (e *Exporter) flush(ctx context.Context) error {
	records := e.batch.records
	request, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	err := e.client.Export(request, records)
	if err != nil && (request.Err() != nil || !isRejection(err)) {
		return fmt.Errorf("export %d records: %w", len(records), err)
	}
	e.batch.records, e.acked = nil, e.position
	if err != nil {
		e.rejected.Inc()
		return e.loop.Pause(ctx, fmt.Errorf("%d records are rejected: %w", len(records), err), 0)
	}
	e.exported.Add(float64(len(records)))
	for _, r := range records {
		e.lag.Observe(time.Since(r.ObservedTimestamp()).Seconds())
	}
	e.loop.Acknowledged()
	e.loop.Works(ctx)
	return nil
}

// isRejection reports whether an error is an answer that forbids to send the request again. The
// OTLP specification (1.7, "Failures") lists the codes of gRPC. Over HTTP the client itself
// repeats requests that may be repeated.
func isRejection(err error) bool {
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return false // no answer
	}
	s, _ := status.FromError(err)
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return false
	case codes.ResourceExhausted:
		return len(s.Details()) == 0 // without a RetryInfo
	}
	return true
}
