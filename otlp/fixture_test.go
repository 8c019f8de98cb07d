package otlp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// protocols are those over which each test of an exporter runs.
var protocols = []string{otlp.ProtocolGRPC, otlp.ProtocolHTTP}

// request is what a receiver got at a time.
type request struct {
	*collogsv1.ExportLogsServiceRequest

	at time.Duration
}

func (r request) records() []*logsv1.LogRecord {
	return r.GetResourceLogs()[0].GetScopeLogs()[0].GetLogRecords()
}

// answer is what a receiver does with a request. Unless keep is true, it loses the records.
type answer struct {
	keep    bool
	partial *collogsv1.ExportLogsPartialSuccess
	err     error
	// after is the time until the answer. cut closes the connection instead.
	after time.Duration
	cut   bool
}

var accepts = answer{keep: true}

// refuse returns an answer with a status, and the wait that it asks for if there is one.
func refuse(code codes.Code, wait time.Duration) answer {
	s := status.New(code, "no")
	if wait != 0 {
		s, _ = s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
	}
	return answer{err: s.Err()}
}

// receiver is an OTLP receiver in memory. It can be stopped and started again.
type receiver struct {
	collogsv1.UnimplementedLogsServiceServer

	protocol string
	began    time.Time

	mu       sync.Mutex
	fault    func(request) answer // nil accepts everything
	requests []request
	records  []*logsv1.LogRecord // those that it has kept
	down     bool
	lives    int // how often it was stopped
}

func (r *receiver) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = false
}

func (r *receiver) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = true
	r.lives++
}

// deliver makes a call, unless the receiver is down; afterwards it may have lost the answer.
func (r *receiver) deliver(ctx context.Context, call func() error) error {
	r.mu.Lock()
	down, life := r.down, r.lives
	r.mu.Unlock()
	if down {
		return status.Error(codes.Unavailable, "connection refused")
	}
	err := call()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case r.lives != life:
		return status.Error(codes.Unavailable, "connection reset")
	}
	return err
}

// Invoke implements grpc.ClientConnInterface: the call over gRPC.
func (r *receiver) Invoke(ctx context.Context, _ string, in, reply any, _ ...grpc.CallOption) error {
	return r.deliver(ctx, func() error {
		out, err := r.Export(ctx, in.(*collogsv1.ExportLogsServiceRequest))
		if err == nil {
			proto.Merge(reply.(proto.Message), out)
		}
		return err
	})
}

// NewStream implements grpc.ClientConnInterface.
func (*receiver) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.ErrUnsupported
}

// RoundTrip implements http.RoundTripper: the call over HTTP.
func (r *receiver) RoundTrip(q *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	err := r.deliver(q.Context(), func() error {
		r.ServeHTTP(w, q)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// Export implements the service.
func (r *receiver) Export(ctx context.Context, in *collogsv1.ExportLogsServiceRequest) (*collogsv1.ExportLogsServiceResponse, error) {
	r.mu.Lock()
	q, a := request{in, time.Since(r.began)}, accepts
	if r.fault != nil {
		a = r.fault(q)
	}
	r.requests = append(r.requests, q)
	if a.keep {
		r.records = append(r.records, q.records()...)
	}
	r.mu.Unlock()
	if a.after > 0 {
		select {
		case <-time.After(a.after):
		case <-ctx.Done(): // the exporter no longer waits
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if a.cut {
		r.stop()
		r.start()
	}
	return &collogsv1.ExportLogsServiceResponse{PartialSuccess: a.partial}, a.err
}

// httpStatus has the status of HTTP for one of gRPC.
var httpStatus = map[codes.Code]int{
	codes.Unavailable: 503, codes.Aborted: 502, codes.ResourceExhausted: 429, codes.DeadlineExceeded: 504, codes.Canceled: 504, codes.InvalidArgument: 400,
}

// ServeHTTP answers over HTTP what Export does over gRPC.
func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	var in collogsv1.ExportLogsServiceRequest
	body, err := io.ReadAll(q.Body)
	if err := errors.Join(err, proto.Unmarshal(body, &in)); err != nil || q.URL.Path != "/v1/logs" || q.Method != http.MethodPost {
		http.Error(w, fmt.Sprint(q.Method, q.URL, err), http.StatusNotFound)
		return
	}
	var message proto.Message
	message, err = r.Export(q.Context(), &in)
	w.Header().Set("Content-Type", "application/x-protobuf")
	if s := status.Convert(err); err != nil {
		for _, detail := range s.Details() {
			w.Header().Set("Retry-After", fmt.Sprint(int(detail.(*errdetails.RetryInfo).GetRetryDelay().AsDuration().Seconds())))
		}
		w.WriteHeader(httpStatus[s.Code()])
		message = s.Proto()
	}
	body, _ = proto.Marshal(message)
	_, _ = w.Write(body)
}

// set changes what the receiver does from now on; nil accepts everything.
func (r *receiver) set(fault func(request) answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// always returns a fault that is the same for each request.
func always(a answer) func(request) answer { return func(request) answer { return a } }

// nth returns a fault of one request, the n-th.
func nth(n int, a answer) func(request) answer {
	number := 0
	return func(request) answer {
		if number++; number == n {
			return a
		}
		return accepts
	}
}

func (r *receiver) got() (requests []request, records []*logsv1.LogRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.records
}

// names returns the events of records in short.
func (r *receiver) names() (names []string) {
	_, records := r.got()
	for _, record := range records {
		names = append(names, fmt.Sprint(record.GetEventName(), " ", attribute(record, "pleg.seq")))
	}
	return names
}

// export runs an exporter, and returns a function that ends it.
func (r *receiver) export(t *testing.T, registry prometheus.Registerer, o otlp.ExporterOptions) (stop func()) {
	t.Helper()
	o.Conn, o.Node, o.Registerer = r, "node-1", registry
	if r.protocol == otlp.ProtocolHTTP {
		o.Conn = otlp.NewHTTPConn(r)
	}
	e, err := otlp.NewExporter(o)
	kit.Must(t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context())) // it ends with a cause
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() {
		cancel(errTestEnds)
		if err := <-ended; err != nil && !errors.Is(err, errTestEnds) {
			t.Errorf("Run returned %v, want the cause of its context or nothing", err)
		}
	}
}

var errTestEnds = errors.New("the test ends")

// node is a pipeline, its exporter, and the receiver, in a bubble.
type node struct {
	t        *testing.T
	runtime  *plegtest.Runtime
	receiver *receiver
	registry *prometheus.Registry
	// truth has every event that was published.
	truth *pipeline.Subscription
}

type nodeOptions struct {
	history  int
	exporter otlp.ExporterOptions
	// before is called before the node runs.
	before func(*node)
	// exporterFirst starts the exporter before the first list, not after it.
	exporterFirst bool
}

// inBubble runs a test with a node on fake time, once over each protocol.
func inBubble(t *testing.T, o nodeOptions, test func(*node)) {
	t.Helper()
	for _, protocol := range protocols {
		kit.Bubble(t, protocol, func(t *testing.T) { withNode(t, protocol, o, test) })
	}
}

func withNode(t *testing.T, protocol string, o nodeOptions, test func(*node)) {
	n := &node{t: t, runtime: plegtest.New(), receiver: &receiver{protocol: protocol, began: time.Now()}, registry: prometheus.NewPedanticRegistry()}
	pipe, err := pipeline.New(pipeline.Options{Runtime: n.runtime, History: o.history})
	kit.Must(t, err)
	if n.truth, err = pipe.Subscribe(pipeline.SubscribeOptions{Name: "truth", Filter: pleg.Filter{NetworkEvents: true}, Buffer: 100_000}); err != nil {
		t.Fatal(err)
	}
	if o.before != nil {
		o.before(n)
	}
	if !o.exporterFirst {
		kit.Run(t, pipe.Run)
		synctest.Wait()
	}
	o.exporter.Source = otlp.From(pipe)
	stop := n.receiver.export(t, n.registry, o.exporter)
	synctest.Wait()
	if o.exporterFirst {
		kit.Run(t, pipe.Run)
		synctest.Wait()
	}
	t.Cleanup(stop) // before the pipeline ends
	test(n)
}

// wait lets time pass and everything happen that then happens.
func (n *node) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// churn restarts a container of a pod once a second: two events each time.
func (n *node) churn(pod pleg.PodUID, restarts int) {
	for i := range restarts {
		n.runtime.Set(pod, fmt.Sprintf("%s-c%d=running /%s-s=running", pod, i, pod))
		n.wait(time.Second)
	}
}

func (n *node) metric(name string) float64 { return kit.Metric(n.t, n.registry, "pleg_otlp_"+name) }

// requireMetrics compares counters.
func (n *node) requireMetrics(want map[string]float64) {
	n.t.Helper()
	for name, value := range want {
		if got := n.metric(name); got != value {
			n.t.Errorf("pleg_otlp_%s is %v, want %v", name, got, value)
		}
	}
}
