package otlp_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/otlp"
	nodes "github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/logrecords"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is a receiver's answer to a request. Unless keep is true, it loses the records.
type answer struct {
	keep bool
	err  error
	// after is the time until the answer.
	after time.Duration
}

var (
	accepts     = answer{keep: true}
	unavailable = answer{err: status.Error(codes.Unavailable, "no")}
	rejects     = answer{err: status.Error(codes.InvalidArgument, "no")}
)

// receiver is both the client and the receiver. As the client does, it returns once its
// context ends.
type receiver struct {
	sdklog.Exporter

	mu    sync.Mutex
	fault func(request int) answer // nil accepts everything
	// at is the time of each request, sizes the number of its records.
	at      []time.Time
	sizes   []int
	records []logrecords.Record // the records that the receiver has kept
}

// Export implements [sdklog.Exporter].
func (r *receiver) Export(ctx context.Context, records []sdklog.Record) error {
	r.mu.Lock()
	r.at, r.sizes = append(r.at, time.Now()), append(r.sizes, len(records))
	a := accepts
	if r.fault != nil {
		a = r.fault(len(r.at))
	}
	if a.keep {
		for i := range records {
			r.records = append(r.records, received(&records[i]))
		}
	}
	r.mu.Unlock()
	select {
	case <-time.After(a.after):
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// received returns a record of the SDK as a receiver gets it.
func received(r *sdklog.Record) logrecords.Record {
	got := logrecords.Record{
		Name: r.EventName(), Severity: r.SeverityText(), Body: r.Body().AsString(), Time: r.Timestamp(), Attributes: make(map[string]any),
	}
	r.WalkAttributes(func(a attribute.KeyValue) bool {
		got.Attributes[string(a.Key)] = a.Value.AsInterface()
		return true
	})
	return got
}

// set changes the answers of the receiver from now on; nil accepts everything.
func (r *receiver) set(fault func(request int) answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// always returns a fault that is the same for each request.
func always(a answer) func(int) answer { return func(int) answer { return a } }

// nth returns a fault of one request, the n-th.
func nth(n int, a answer) func(int) answer {
	return func(request int) answer {
		if request == n {
			return a
		}
		return accepts
	}
}

func (r *receiver) got() []logrecords.Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records
}

// names returns the events of records in short.
func (r *receiver) names() (names []string) {
	for _, record := range r.got() {
		names = append(names, fmt.Sprint(record.Name, " ", record.Attributes["pleg.seq"]))
	}
	return names
}

var errTestEnds = errors.New("the test ends")

// export runs an exporter, and returns a function that ends it.
func (r *receiver) export(t *testing.T, registry prometheus.Registerer, source nodes.Pipeline) (stop func()) {
	t.Helper()
	e, err := otlp.NewExporter(otlp.ExporterOptions{Client: r, Source: source, Registerer: registry})
	kit.Must(t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context())) // ctx ends with a cause
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return func() {
		cancel(errTestEnds)
		if err := <-ended; err != nil && !errors.Is(err, errTestEnds) {
			t.Errorf("Run returned %v, want the cause of its context or nothing", err)
		}
	}
}

// node is a pipeline, its exporter, and the receiver, in a bubble.
type node struct {
	t        *testing.T
	runtime  *plegtest.Runtime
	receiver *receiver
	registry *prometheus.Registry
	// truth contains every event that was published.
	truth *kit.Subscriber
}

type nodeOptions struct {
	history int
	// before is called before the node runs.
	before func(*node)
	// exporterFirst starts the exporter before the first list, not after it.
	exporterFirst bool
}

// inBubble runs a test with a node on fake time.
func inBubble(t *testing.T, o nodeOptions, test func(*node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{t: t, runtime: plegtest.New(), receiver: new(receiver), registry: prometheus.NewPedanticRegistry()}
		pipe, err := pipeline.New(pipeline.Options{Runtime: n.runtime, History: o.history})
		kit.Must(t, err)
		n.truth = (&kit.Pipeline{Pipeline: pipe}).Follow(t, pleg.SubscribeOptions{Name: "truth", Filter: pleg.Filter{NetworkEvents: true}}, nil)
		if o.before != nil {
			o.before(n)
		}
		start := func() {
			kit.Run(t, pipe.Run)
			synctest.Wait()
		}
		if !o.exporterFirst {
			start()
		}
		stop := n.receiver.export(t, n.registry, pipe)
		synctest.Wait()
		if o.exporterFirst {
			start()
		}
		t.Cleanup(stop) // before the pipeline ends
		test(n)
	})
}

// wait lets time pass, and then waits until every goroutine is blocked.
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

// requirePromises fails the test if a promise is broken, or a request contains more records than
// allowed.
func (n *node) requirePromises() {
	n.t.Helper()
	kit.Must(n.t, logrecords.Check(n.receiver.got(), n.truth.Events()))
	for i, size := range n.receiver.sizes {
		if size == 0 || size > 256 {
			n.t.Errorf("request %d has %d records, want 1 to 256", i, size)
		}
	}
}
