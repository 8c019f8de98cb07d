package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/node"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The shortest and the longest time between two attempts of a publisher and of a watch. Half of it is
// random. While there is no connection, an attempt costs nothing.
const (
	minBackoff = 250 * time.Millisecond
	maxBackoff = 5 * time.Second
	// fullBackoff is the least time until a full server is asked again.
	fullBackoff = time.Minute
)

// PublisherOptions configure a [Publisher]. Conn, Source, Cluster and Node are required.
type PublisherOptions struct {
	// Conn is the connection to the server; see [Connect]. The publisher does not
	// close it.
	Conn *nats.Conn
	// Source is the pipeline of this process or the daemon of this node.
	Source node.Pipeline
	// Domain is the JetStream domain of the stream, if Conn leads to a leaf node of another one.
	Domain string
	// Cluster and Node name the node among all that publish on this server.
	Cluster, Node string
	// Health returns the status of the pipeline: the verdict on it is published every four seconds,
	// and within a second if it has changed. If nil, none is published.
	Health func(context.Context) (pleg.Status, error)
	// Limits apply to the stream and the bucket if they do not exist yet.
	Limits Limits
	// Logger logs when publishing stops and works again. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics pleg_fleet_… until Run returns. If nil, they are not registered.
	Registerer prometheus.Registerer
}

func (o *PublisherOptions) complete() error {
	if o.Conn == nil {
		return errors.New("PublisherOptions.Conn must not be nil")
	}
	if o.Source == nil {
		return errors.New("PublisherOptions.Source must not be nil")
	}
	if err := errors.Join(
		checkName("PublisherOptions.Cluster", o.Cluster, maxCluster),
		checkName("PublisherOptions.Node", o.Node, maxName),
		o.Limits.complete(),
	); err != nil {
		return err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Publisher publishes the events of one node and the state of its pods. Create it with
// [NewPublisher].
//
// It keeps no file. It begins with a Gap and the present state of all pods, and continues after each
// lost connection with the events in the history of the pipeline. If the history is too short, or the
// server refused or lost something, it begins again.
type Publisher struct {
	o       PublisherOptions
	js      jetstream.JetStream
	log     *slog.Logger
	metrics *metrics
	// agent names this publisher on the server, and key the node. The subject of the node's own messages is node, and
	// all is the filter for the node's messages.
	agent, key, node, all string
	source                string // of its CloudEvents
	loop                  exporter.Loop
	cuts                  atomic.Uint64
	fault                 atomic.Pointer[fault] // nil while it works

	session // Run owns it
}

// NewPublisher returns a publisher that does not run yet. The error names the bad
// option.
func NewPublisher(o PublisherOptions) (*Publisher, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new publisher: %w", option.Invalid(err))
	}
	forget := jetstream.WithPublishAsyncTimeout(searchTimeout) // an answer that has not come by then
	js, err := jetstream.New(o.Conn, forget)
	if o.Domain != "" {
		js, err = jetstream.NewWithDomain(o.Conn, o.Domain, forget)
	}
	if err != nil {
		return nil, fmt.Errorf("new publisher: %w", err)
	}
	host, _ := os.Hostname() // only for people
	p := &Publisher{
		o: o, js: js, log: o.Logger.With("stage", "fleet", "node", o.Node), source: ceSource(o.Cluster, o.Node),
		agent: fmt.Sprintf("%s/%d/%08x", host, os.Getpid(), rand.Uint32()), key: nodeKey(o.Cluster, o.Node),
	}
	p.node, p.all = nodeSubject(o.Cluster, o.Node), allOf(o.Cluster, o.Node)[0]
	p.loop.Log, p.loop.Failed, p.loop.Recovered = p.log, "cannot publish events", "publishing again"
	p.loop.Backoff = backoff.Backoff{Min: minBackoff, Max: maxBackoff}
	p.loop.Wait = p.pause
	p.loop.Count = func(err error) time.Duration {
		if p.metrics.retries.Inc(); isFull(refusal(err)) {
			return fullBackoff
		}
		return 0
	}
	p.loop.Acknowledged()
	p.metrics, p.loop.Ended, err = newMetrics(o.Registerer, &p.fault)
	if err != nil {
		return nil, fmt.Errorf("new publisher: %w", err)
	}
	return p, nil
}

// PublisherStatus is the state of publishing.
type PublisherStatus struct {
	// LastAck is the time at which the stream last acknowledged something, or the start.
	LastAck time.Time
	// Err is the error that ended the last attempt to publish; nil while publishing works.
	Err error
	// Cut is how often an event or a state was too large and was published in part.
	Cut uint64
}

// Status returns the state of publishing. It does not block and is safe for concurrent use.
func (p *Publisher) Status() PublisherStatus {
	lastAck, err := p.loop.Status()
	return PublisherStatus{LastAck: lastAck, Err: err, Cut: p.cuts.Load()}
}

// cut counts the events and states that were too large and are published in part. Only the first is
// logged: a pod that is too large remains so.
func (p *Publisher) cut(ctx context.Context, ev *pleg.Event, why string) {
	p.metrics.cut.Inc()
	if p.cuts.Add(1) == 1 {
		p.log.WarnContext(ctx, "a pod is published in part", "namespace", ev.PodNamespace, "pod", ev.PodName, "why", why)
	}
}

// Run publishes until ctx or the source ends, and then returns nil. Errors of the server are
// retried with backoff; Run returns none. A publisher runs once; a second call is an error.
func (p *Publisher) Run(ctx context.Context) error {
	err := p.loop.Run(ctx, p.publishOnce)
	if err == nil { // otherwise the lease is of the first call
		p.endLease(ctx)
	}
	return err
}

type metrics struct {
	published prometheus.Counter
	retries   prometheus.Counter
	cut       prometheus.Counter
	lag       prometheus.Histogram
}

func newMetrics(registerer prometheus.Registerer, failing *atomic.Pointer[fault]) (m *metrics, unregister func(), err error) {
	s := instrument.Registry{Registerer: registerer}.NewSet()
	m = &metrics{
		published: s.Counter("pleg_fleet_published_events_total", "Events that the NATS server has acknowledged."),
		retries:   s.Counter("pleg_fleet_retries_total", "Times that publishing began again after an error."),
		cut:       s.Counter("pleg_fleet_cut_total", "Events and states that were too large for a message and were published in part."),
		lag: s.Histogram("pleg_fleet_lag_seconds", "Time from the observation of an event to the acknowledgement of the NATS server.",
			instrument.LagBuckets),
	}
	s.GaugeFunc("pleg_fleet_failing_seconds", "Time for which nothing could be published; 0 while the stream acknowledges what is sent.", func() float64 {
		if f := failing.Load(); f != nil {
			return time.Since(f.Since).Seconds()
		}
		return 0
	})
	return m, s.Unregister, s.Register()
}
