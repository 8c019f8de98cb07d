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
	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Defaults of [PublisherOptions].
const (
	DefaultMinBackoff     = 500 * time.Millisecond
	DefaultMaxBackoff     = 15 * time.Second
	DefaultPublishTimeout = 5 * time.Second
)

// PublisherOptions configure a [Publisher]. Conn, Source, Cluster and Node are required.
type PublisherOptions struct {
	// Conn is the connection to the server; see [Connect]. The publisher does not
	// close it.
	Conn *nats.Conn
	// Source is where the events come from.
	Source Source
	// Cluster and Node name the node among all that publish on this server.
	Cluster, Node string
	// Limits are those of the stream and the buckets, if they do not exist yet.
	Limits Limits
	// MinBackoff and MaxBackoff are the shortest and the longest time until the
	// publisher begins again after an error. The time doubles with each error, and
	// half of it is random. If zero, [DefaultMinBackoff] and [DefaultMaxBackoff].
	MinBackoff, MaxBackoff time.Duration
	// PublishTimeout is the time in which the server must acknowledge a message. If
	// zero, [DefaultPublishTimeout].
	PublishTimeout time.Duration
	// Logger logs when publishing stops and works again. If nil, nothing is logged.
	Logger *slog.Logger
	// Registerer registers the metrics pleg_fleet_…. If nil, they are not registered.
	Registerer prometheus.Registerer
}

func (o *PublisherOptions) complete() error {
	if o.Conn == nil {
		return errors.New("PublisherOptions.Conn must not be nil")
	}
	if o.Source == nil {
		return errors.New("PublisherOptions.Source must not be nil")
	}
	if o.Limits.MaxBytes < 0 || o.Limits.Replicas < 0 || o.Limits.Replicas > 5 {
		return fmt.Errorf("PublisherOptions.Limits has a negative MaxBytes or not 1 to 5 Replicas: %+v", o.Limits)
	}
	if err := errors.Join(
		checkName("PublisherOptions.Cluster", o.Cluster),
		checkName("PublisherOptions.Node", o.Node),
		option.Default("MinBackoff", &o.MinBackoff, DefaultMinBackoff),
		option.Default("MaxBackoff", &o.MaxBackoff, max(DefaultMaxBackoff, o.MinBackoff)),
		option.Default("PublishTimeout", &o.PublishTimeout, DefaultPublishTimeout),
		option.Default("Limits.MaxAge", &o.Limits.MaxAge, DefaultMaxAge),
	); err != nil {
		return err
	}
	if o.MinBackoff > o.MaxBackoff {
		return fmt.Errorf("PublisherOptions.MinBackoff must not exceed MaxBackoff, got %v and %v", o.MinBackoff, o.MaxBackoff)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Publisher publishes the events of one node and the state of its pods. Create it with
// [NewPublisher].
//
// It keeps no file: it reads on the server what it published last, and continues after
// that with what the history of the pipeline still has. If that is too short, or the
// pipeline is a new one, it publishes a Gap and the present state.
type Publisher struct {
	o       PublisherOptions
	js      jetstream.JetStream
	log     *slog.Logger
	metrics *metrics
	// agent names this publisher in AgentBucket.
	agent   string
	running atomic.Bool
	lastAck atomic.Pointer[time.Time]
	failure atomic.Pointer[error]
	cuts    atomic.Uint64

	// Run owns the fields below. They outlive a session.

	// server is kept between sessions: after a restart of the server thousands of agents
	// come back at once, and each question costs. It is nil until it was opened, and
	// after an error that says that something may be gone.
	server *server
	// owned is true once this publisher has published as its node.
	owned bool
	// acked is the position of the last event that the server acknowledged.
	acked pleg.Position
	// replay makes the next session begin with the present state.
	replay bool
	// kept is the last session, if what it knows of the server may still be true. The
	// next one then asks only for what it cannot know.
	kept *session
}

// NewPublisher returns a publisher that does not run yet. The error names the bad
// option.
func NewPublisher(o PublisherOptions) (*Publisher, error) {
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new publisher: %w", err)
	}
	js, err := jetstream.New(o.Conn, jetstream.WithDefaultTimeout(requestTimeout))
	if err != nil {
		return nil, fmt.Errorf("new publisher: %w", err)
	}
	host, _ := os.Hostname() // only for people
	p := &Publisher{
		o: o, js: js, log: o.Logger.With("stage", "fleet"),
		agent: fmt.Sprintf("%s/%d/%08x", host, os.Getpid(), rand.Uint32()),
	}
	p.acknowledged()
	p.metrics, err = newMetrics(o.Registerer, func() time.Time { return *p.lastAck.Load() })
	if err != nil {
		return nil, fmt.Errorf("new publisher: %w", err)
	}
	return p, nil
}

func (p *Publisher) acknowledged() {
	now := time.Now()
	p.lastAck.Store(&now)
}

// PublisherStatus is how publishing goes.
type PublisherStatus struct {
	// LastAck is when the server last acknowledged something, or the start.
	LastAck time.Time
	// Err is why the last attempt to publish ended; nil while it works.
	Err error
	// Cut is how often an event or a state was too large and was published in part.
	Cut uint64
}

// Status returns how publishing goes. It does not block and is safe for concurrent use.
func (p *Publisher) Status() PublisherStatus {
	s := PublisherStatus{LastAck: *p.lastAck.Load(), Cut: p.cuts.Load()}
	if err := p.failure.Load(); err != nil {
		s.Err = *err
	}
	return s
}

// cut counts what was too large and is published in part. Only the first is logged: a pod that is
// too large is so with each of its events.
func (p *Publisher) cut(ctx context.Context, namespace, name, why string) {
	p.metrics.cut.Inc()
	if p.cuts.Add(1) == 1 {
		p.log.WarnContext(ctx, "a pod is published in part", "node", p.o.Node, "namespace", namespace, "pod", name, "why", why)
	}
}

var (
	errSourceEnded = errors.New("there are no more events")
	// errOverrun means that the source discarded events because the server is slow.
	// They are still in its history.
	errOverrun = errors.New("the server is slower than the events")
	errHole    = errors.New("the source left out events")
	errHeld    = errors.New("another agent publishes as this node")
)

// Run publishes until ctx or the source ends. In the first case it returns the cause of
// ctx. Errors of the server are retried with backoff; Run returns none. A publisher runs
// once; a second call is an error.
func (p *Publisher) Run(ctx context.Context) error {
	if p.running.Swap(true) {
		return errors.New("run publisher: it has already run: create a new one")
	}
	backoff, logged := newBackoff(p.o.Conn, p.o.MinBackoff, p.o.MaxBackoff), ""
	for {
		ready := func() {
			if logged != "" {
				p.log.InfoContext(ctx, "publishing again", "node", p.o.Node)
			}
			logged = ""
			p.failure.Store(nil)
			backoff.reset()
		}
		err := p.session(ctx, ready)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, errSourceEnded) {
			return nil
		}
		p.failure.Store(&err)
		p.metrics.retries.Inc()
		if isRefused(err) {
			p.metrics.refused.Inc()
		}
		retryIn := backoff.next()
		if text := err.Error(); text != logged {
			logged = text
			p.log.WarnContext(ctx, "cannot publish events", "node", p.o.Node, "err", err, "retryIn", retryIn)
		}
		if err := backoff.wait(ctx, retryIn); err != nil {
			return err
		}
	}
}

// isRefused reports whether the server answered and said no.
func isRefused(err error) bool { return errors.As(err, new(*jetstream.APIError)) }

// eventBuffer is the number of events that wait for one message to be acknowledged
// before the source has to wait too.
const eventBuffer = 256

// session publishes until an error occurs. It calls ready when the server has accepted
// something.
func (p *Publisher) session(ctx context.Context, ready func()) error {
	s, err := p.open(ctx, ready)
	if err != nil {
		return err
	}
	events := make(chan pleg.Event, eventBuffer)
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := p.o.Source.Follow(running, s.after, events); err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		close(events) // only then: it means that the source has ended well
		return nil
	})
	group.Go(func() error { return s.run(running, events) })
	err = group.Wait()
	p.keep(s, err)
	if ctx.Err() != nil || errors.Is(err, errSourceEnded) {
		s.release(context.WithoutCancel(ctx))
	}
	return err
}
