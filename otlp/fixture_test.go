package otlp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	collogsv1 "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	logsv1 "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/otlp"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
)

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

// receiver is an OTLP receiver in memory. It can be stopped and started again.
type receiver struct {
	collogsv1.UnimplementedLogsServiceServer

	began time.Time

	mu       sync.Mutex
	fault    func(request) answer // nil accepts everything
	requests []request
	records  []*logsv1.LogRecord // those that it has kept
	server   *grpc.Server
	listener *bufconn.Listener
}

func (r *receiver) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server, r.listener = grpc.NewServer(), bufconn.Listen(1<<20)
	collogsv1.RegisterLogsServiceServer(r.server, r)
	go func(s *grpc.Server, l net.Listener) { _ = s.Serve(l) }(r.server, r.listener)
}

func (r *receiver) stop() {
	r.mu.Lock()
	server := r.server
	r.mu.Unlock()
	server.Stop()
}

func (r *receiver) dial(ctx context.Context, _ string) (net.Conn, error) {
	r.mu.Lock()
	listener := r.listener
	r.mu.Unlock()
	return listener.DialContext(ctx)
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

// set changes what the receiver does from now on; nil accepts everything.
func (r *receiver) set(fault func(request) answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// always returns a fault that is the same for each request.
func always(a answer) func(request) answer { return func(request) answer { return a } }

func (r *receiver) got() (requests []request, records []*logsv1.LogRecord) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests, r.records
}

// node is a pipeline, its exporter, and the receiver, in a bubble.
type node struct {
	t        *testing.T
	runtime  *plegtest.Runtime
	pipe     *pipeline.Pipeline
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

// inBubble runs a test with a node on fake time.
func inBubble(t *testing.T, o nodeOptions, test func(*node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, runtime: plegtest.New(), receiver: newReceiver(), registry: prometheus.NewPedanticRegistry()}
		var err error
		if n.pipe, err = pipeline.New(pipeline.Options{Runtime: n.runtime, History: o.history}); err != nil {
			t.Fatal(err)
		}
		if n.truth, err = n.pipe.Subscribe(pipeline.SubscribeOptions{Name: "truth", Filter: pleg.Filter{NetworkEvents: true}, Buffer: 100_000}); err != nil {
			t.Fatal(err)
		}
		if o.before != nil {
			o.before(n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		run := func() {
			running.Go(func() { _ = n.pipe.Run(ctx) })
			synctest.Wait()
		}
		if !o.exporterFirst {
			run()
		}
		o.exporter.Source = otlp.From(n.pipe)
		stop := n.receiver.export(t, n.registry, o.exporter)
		defer func() { // also after a failure, or the bubble hides it
			stop()
			cancel()
			running.Wait()
			n.receiver.stop()
		}()
		synctest.Wait()
		if o.exporterFirst {
			run()
		}
		test(n)
	})
}

func newReceiver() *receiver {
	r := &receiver{began: time.Now()}
	r.start()
	return r
}

// export runs an exporter, and returns a function that ends it.
func (r *receiver) export(t *testing.T, registry prometheus.Registerer, o otlp.ExporterOptions) (stop func()) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///receiver", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(r.dial))
	if err != nil {
		t.Fatal(err)
	}
	o.Conn, o.Node, o.Registerer = conn, "node-1", registry
	e, err := otlp.NewExporter(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() {
		cancel(errTestEnds)
		if err := <-ended; err != nil && !errors.Is(err, errTestEnds) {
			t.Errorf("Run returned %v, want the cause of its context or nothing", err)
		}
		conn.Close()
	}
}

var errTestEnds = errors.New("the test ends")

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

// published returns the events so far.
func (n *node) published() []pleg.Event {
	var events []pleg.Event
	for {
		select {
		case ev := <-n.truth.Events():
			events = append(events, ev)
		default:
			return events
		}
	}
}

// metric returns the value of a counter, or the number of observations of a histogram.
func (n *node) metric(name string) float64 {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		if m := f.GetMetric()[0]; f.GetName() == name {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	n.t.Fatalf("no metric %s", name)
	return 0
}

func attribute(r *logsv1.LogRecord, key string) (value any) {
	for _, a := range r.GetAttributes() {
		if a.GetKey() == key {
			switch v := a.GetValue(); {
			case v.GetStringValue() != "":
				return v.GetStringValue()
			case v.GetBoolValue():
				return true
			default:
				return v.GetIntValue()
			}
		}
	}
	return nil
}
