package otlp_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestEndpoints(t *testing.T) {
	const overHTTP, overGRPC = "http/protobuf", "grpc"
	const bad = "bad endpoint: want HOST:PORT or a URL of http or https, such as http://127.0.0.1:4317; headers belong into OTEL_EXPORTER_OTLP_HEADERS"
	for _, tc := range []struct{ protocol, endpoint, want string }{
		{"", "collector:4317", "grpc //collector:4317"},
		{"", "[::1]:4317", "grpc //[::1]:4317"},
		{"", "http://collector:4317/", "grpc http://collector:4317/"},
		{"", "https://collector:4318", "http https://collector:4318/v1/logs"},
		{"", "http://loki:3100/otlp/v1/logs", "http http://loki:3100/otlp/v1/logs"},
		{overHTTP, "collector:80", "http //collector:80/v1/logs"},
		{overHTTP, "https://collector", "http https://collector/v1/logs"},
		{overGRPC, "collector:4318", "grpc //collector:4318"},
		{"", "", bad},
		{"", ":4317", bad},
		{"", "collector:port", bad},
		{"", "grpc://collector:4317", bad},
		{"", "https://u:secret@collector:4317", bad},
		{"", "https://collector/v1/logs?q", bad},
		{"", "http://collector", "bad endpoint: want a port and no path for gRPC, such as collector:4317"},
		{overGRPC, "http://collector:4318/v1/logs", "bad endpoint: want a port and no path for gRPC, such as collector:4317"},
		{"http/json", "http://collector", `OTEL_EXPORTER_OTLP_PROTOCOL is "http/json": want grpc or http/protobuf`},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", tc.protocol)
		got, err := otlp.Endpoint(tc.endpoint)
		if err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%s %q: got %s, want %s", tc.protocol, tc.endpoint, got, tc.want)
		}
	}
	if _, err := otlp.NewClient(t.Context(), "h"); err == nil || !strings.HasPrefix(err.Error(), "OTEL_EXPORTER_OTLP_PROTOCOL is ") {
		t.Errorf("a client of it: %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", overGRPC) // goes before that of all signals
	if got, err := otlp.Endpoint("collector:4318"); err != nil || got != "grpc //collector:4318" {
		t.Errorf("with a protocol for logs: got %s, %v", got, err)
	}
}

// answerOf makes the answer to a request.
type answerOf func() (*collogsv1.ExportLogsServiceResponse, error)

func refuse(code codes.Code) answerOf {
	return func() (*collogsv1.ExportLogsServiceResponse, error) { return nil, status.Error(code, "no") }
}

// server is a real receiver of both protocols on loopback.
type server struct {
	collogsv1.UnimplementedLogsServiceServer
	*httptest.Server

	// answers are the answers to the first requests; later requests are accepted.
	answers chan answerOf
	headers chan http.Header
	// kept are the accepted records, refused those of requests that got another answer.
	kept, refused atomic.Int64
}

func listen(t *testing.T, config *tls.Config) *server {
	t.Helper()
	s := &server{answers: make(chan answerOf, 10), headers: make(chan http.Header, 100)}
	overGRPC := grpc.NewServer()
	collogsv1.RegisterLogsServiceServer(overGRPC, s)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.headers <- q.Header
		if strings.HasPrefix(q.Header.Get("Content-Type"), "application/grpc") {
			overGRPC.ServeHTTP(w, q)
			return
		}
		s.serveHTTP(w, q)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(s.Close)
	if s.TLS = config; config != nil {
		s.EnableHTTP2 = true
		s.StartTLS()
		return s
	}
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	return s
}

// Export implements the service.
func (s *server) Export(_ context.Context, in *collogsv1.ExportLogsServiceRequest) (*collogsv1.ExportLogsServiceResponse, error) {
	records := int64(len(in.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords()))
	select {
	case answer := <-s.answers:
		s.refused.Add(records)
		return answer()
	default:
		s.kept.Add(records)
		return &collogsv1.ExportLogsServiceResponse{}, nil
	}
}

// serveHTTP answers over HTTP as Export does over gRPC.
func (s *server) serveHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Header.Get("Content-Encoding") == "gzip" {
		q.Body, _ = gzip.NewReader(q.Body)
	}
	var in collogsv1.ExportLogsServiceRequest
	body, err := io.ReadAll(q.Body)
	if err := errors.Join(err, proto.Unmarshal(body, &in)); err != nil || q.URL.Path != "/v1/logs" {
		http.Error(w, "no OTLP", http.StatusNotFound)
		return
	}
	out, err := s.Export(q.Context(), &in)
	if err != nil {
		http.Error(w, err.Error(), map[codes.Code]int{codes.Unavailable: 503, codes.InvalidArgument: 400, codes.Unauthenticated: 401}[status.Code(err)])
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	body, _ = proto.Marshal(out)
	_, _ = w.Write(body)
}

// overEachProtocol runs a test with gRPC and with HTTP.
func overEachProtocol(t *testing.T, test func(*testing.T)) {
	t.Helper()
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			test(t)
		})
	}
}

// exportTo exports three records to an endpoint, and returns the metrics and the log.
func exportTo(t *testing.T, endpoint string) (*prometheus.Registry, *kit.Log) {
	t.Helper()
	client, err := otlp.NewClient(t.Context(), endpoint)
	kit.Must(t, err)
	registry, log := prometheus.NewPedanticRegistry(), new(kit.Log)
	source := &script{parts: [][]pleg.Event{{event(pleg.Gap, 0), event(pleg.Synced, 0), event(pleg.PodSync, 1)}}, err: pleg.ErrStopped}
	e, err := otlp.NewExporter(otlp.ExporterOptions{Client: client, Source: source, Registerer: kit.Kept{Registerer: registry}, Logger: log.Logger()})
	kit.Must(t, err)
	kit.Must(t, errors.Join(e.Run(t.Context()), client.Shutdown(t.Context())))
	return registry, log
}

// OpenTelemetry's clients repeat a request after some answers, and return an error after others.
func TestAnswersOfAReceiver(t *testing.T) {
	const rejected = "pleg_otlp_rejected_requests_total"
	overEachProtocol(t, func(t *testing.T) {
		// A request contains those of the three records that existed when it began.
		for name, tc := range map[string]struct {
			answer   answerOf
			rejected float64
			log      string
		}{
			"accepted":        {nil, 0, ""},
			"unavailable":     {refuse(codes.Unavailable), 0, ""},
			"invalid":         {refuse(codes.InvalidArgument), 1, "records are rejected"},
			"unauthenticated": {refuse(codes.Unauthenticated), 1, "records are rejected"},
			"partial success": {func() (*collogsv1.ExportLogsServiceResponse, error) {
				return &collogsv1.ExportLogsServiceResponse{PartialSuccess: &collogsv1.ExportLogsPartialSuccess{RejectedLogRecords: 1, ErrorMessage: "too old"}}, nil
			}, 1, "too old (1 logs rejected)"},
		} {
			s := listen(t, nil)
			if tc.answer != nil {
				s.answers <- tc.answer
			}
			began := time.Now()
			registry, log := exportTo(t, s.URL)
			if took := time.Since(began); name == "unavailable" && took < time.Second/4 {
				t.Errorf("the request is repeated after %v, want half a second, half of it random", took)
			}
			kept := int64(3)
			if tc.rejected > 0 {
				kept -= s.refused.Load() // rejected records are not sent again
			}
			if got := kit.Metric(t, registry, rejected); got != tc.rejected || s.kept.Load() != kept || kept == 3 && tc.rejected > 0 || !strings.Contains(log.String(), tc.log) {
				t.Errorf("%s: %v rejected requests and %d records, want %v and %d; log:\n%s", name, got, s.kept.Load(), tc.rejected, kept, log)
			}
		}
	})
}

// Only an answer is a rejection. The codes are those of the OTLP specification.
func TestRejections(t *testing.T) {
	retried := map[codes.Code]bool{
		codes.Canceled: true, codes.DeadlineExceeded: true, codes.Aborted: true,
		codes.OutOfRange: true, codes.Unavailable: true, codes.DataLoss: true,
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if got := !otlp.IsRejection(fmt.Errorf("timed out: %w", status.Error(code, ""))); got != retried[code] {
			t.Errorf("%v is retried: %t, want %t", code, got, retried[code])
		}
	}
	exhausted, err := status.New(codes.ResourceExhausted, "").WithDetails(new(errdetails.RetryInfo))
	kit.Must(t, err)
	for _, err := range []error{exhausted.Err(), &url.Error{Err: io.EOF}, io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		if otlp.IsRejection(err) {
			t.Errorf("%v counts as a rejection", err)
		}
	}
}

// OpenTelemetry's variables reach the receiver.
func TestVariablesOfOpenTelemetry(t *testing.T) {
	cert, key := kit.SelfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	kit.Must(t, err)
	clients := x509.NewCertPool()
	clients.AddCert(pair.Leaf)
	for name, value := range map[string]string{
		"CERTIFICATE": cert, "CLIENT_CERTIFICATE": cert, "CLIENT_KEY": key, "COMPRESSION": "gzip", "HEADERS": "authorization=Bearer%20abc",
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_"+name, value)
	}
	overEachProtocol(t, func(t *testing.T) {
		s := listen(t, &tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
		})
		exportTo(t, s.URL)
		kind := map[string]string{"grpc": "application/grpc", "http/protobuf": "application/x-protobuf"}[os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")]
		if h := <-s.headers; h.Get("Content-Type") != kind || h.Get("Authorization") != "Bearer abc" || h.Get("Grpc-Encoding")+h.Get("Content-Encoding") != "gzip" || s.kept.Load() != 3 {
			t.Errorf("headers %q and %d records, want %s, the token, gzip and 3", h, s.kept.Load(), kind)
		}
	})
}
