package otlp

import (
	"context"
	"errors"
	"fmt"
	"time"

	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// export sends the records in one request and counts what became of them.
func (e *Exporter) export(ctx context.Context, records []*logsv1.LogRecord) error {
	sent, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	response, err := e.client.Export(sent, &collogsv1.ExportLogsServiceRequest{ResourceLogs: []*logsv1.ResourceLogs{{
		Resource:  e.resource,
		SchemaUrl: schemaURL,
		ScopeLogs: []*logsv1.ScopeLogs{{
			Scope:      &commonv1.InstrumentationScope{Name: scopeName, Version: e.o.ServiceVersion},
			SchemaUrl:  schemaURL,
			LogRecords: records,
		}},
	}}})
	if err != nil {
		if isPermanent(err) {
			e.metrics.dropped.Add(float64(len(records)))
		}
		return fmt.Errorf("export %d records: %w", len(records), err)
	}
	e.loop.Acknowledged()
	e.settle(ctx, records, response.GetPartialSuccess())
	return nil
}

// settle counts the records of a request that was answered. The receiver may have rejected
// some of them: they must not be sent again, and it does not say which.
func (e *Exporter) settle(ctx context.Context, records []*logsv1.LogRecord, partial *collogsv1.ExportLogsPartialSuccess) {
	refused := min(max(0, partial.GetRejectedLogRecords()), int64(len(records)))
	e.metrics.exported.Add(float64(int64(len(records)) - refused))
	e.metrics.refused.Add(float64(refused))
	if message := text(partial.GetErrorMessage()); refused > 0 || message != "" {
		e.warn(ctx, refused, message)
	} else {
		e.warned = ""
	}
	now := time.Now()
	for _, r := range records {
		if at := observedAt(r); !at.IsZero() {
			e.metrics.lag.Observe(now.Sub(at).Seconds())
		}
	}
}

// warn logs what a receiver says of a request that it accepted, once for each message.
func (e *Exporter) warn(ctx context.Context, refused int64, message string) {
	key := fmt.Sprint(refused > 0, message)
	if key == e.warned {
		return
	}
	e.warned = key
	if refused > 0 {
		e.log.WarnContext(ctx, "receiver refused records", "records", refused, "message", message)
	} else {
		e.log.InfoContext(ctx, "receiver warns", "message", message)
	}
}

// isPermanent reports whether a request must not be repeated. The OTLP specification (1.7,
// "Failures") lists the codes.
func isPermanent(err error) bool {
	if answer, ok := errors.AsType[*httpError](err); ok {
		return !answer.retry
	}
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return false
	case codes.ResourceExhausted:
		return retryInfo(s) == nil
	default:
		return true
	}
}

func retryInfo(s *status.Status) *errdetails.RetryInfo {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info
		}
	}
	return nil
}

// maxAskedFor bounds the time for which a receiver can make the exporter wait.
const maxAskedFor = 5 * time.Minute

// askedFor returns how long the receiver asks to wait; 0 if it does not.
func askedFor(err error) time.Duration {
	if answer, ok := errors.AsType[*httpError](err); ok {
		return min(answer.wait, maxAskedFor)
	}
	s, ok := status.FromError(err)
	if !ok {
		return 0
	}
	return min(retryInfo(s).GetRetryDelay().AsDuration(), maxAskedFor)
}
