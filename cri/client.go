package cri

import (
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var (
	_ pleg.Runtime      = (*Client)(nil)
	_ pleg.PodLister    = (*Client)(nil)
	_ pleg.EventWatcher = (*Client)(nil)
	_ pleg.Degraded     = (*Client)(nil)
)

// Client calls one container runtime. It is safe for concurrent use; concurrent
// lists run one after the other.
type Client struct {
	endpoint string
	socket   string
	opts     Options
	metrics  *metrics
	conn     *grpc.ClientConn
	// events is a connection of its own for the event stream, so that events and
	// lists do not wait for each other's bytes.
	events *grpc.ClientConn
	// connections is the number of connections that conn has had.
	connections atomic.Int64
	runtime     runtimeapi.RuntimeServiceClient
	codec       listCodec
	// lists holds the state of the lists while no list is running.
	lists chan *lists
	// known is the result of the last list; nil before the first.
	known atomic.Pointer[known]
	// unlabelledEvents counts the CRI events of sandboxes and containers without
	// the kubelet's label. unlabelledListed is that count when the last list began.
	unlabelledEvents, unlabelledListed atomic.Int64
	degraded                           atomic.Pointer[error]
	seen                               seenSandboxes
	// calls holds one value for each status call in flight that is not hung.
	calls chan struct{}
}

// New returns a client of the runtime at endpoint, which is unix:///path or an
// absolute path. It does not connect: the first call does, and each further one if
// the connection was lost. [Client.Check] reports whether a runtime answers. The
// error names the invalid argument or option. The caller must call [Client.Close].
func New(endpoint string, opts Options) (*Client, error) {
	socket, err := socketPath(endpoint)
	if err != nil {
		return nil, err
	}
	opts, err = opts.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(instrument.Registry{Registerer: opts.Registerer, KubeletNames: opts.KubeletMetricNames})
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	c := &Client{
		endpoint: endpoint,
		socket:   socket,
		opts:     opts,
		metrics:  m,
		codec:    newListCodec(),
		lists:    make(chan *lists, 1),
		calls:    make(chan struct{}, opts.MaxStatusCalls),
	}
	c.conn, err = dial(socket, opts, grpc.WithTransportCredentials(newCounted(&c.connections)), grpc.WithChainUnaryInterceptor(m.intercept),
		grpc.WithInitialWindowSize(answerWindow), grpc.WithInitialConnWindowSize(answerWindow))
	if err != nil {
		return nil, fmt.Errorf("cri: endpoint %s: %w", endpoint, err)
	}
	c.events, err = dial(socket, opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(m.intercept),
		grpc.WithInitialWindowSize(eventWindow), grpc.WithInitialConnWindowSize(eventWindow))
	if err != nil {
		return nil, fmt.Errorf("cri: endpoint %s: %w", endpoint, errors.Join(err, c.conn.Close()))
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(c.conn)
	c.lists <- newLists(opts.Logger, m)
	return c, nil
}

// Close closes the connections. Calls in flight fail with the code Canceled. It
// does not wait for them.
func (c *Client) Close() error {
	return errors.Join(c.conn.Close(), c.events.Close())
}

// Conn returns the connection to the runtime, for CRI calls that have no method
// here, such as Status and ImageFsInfo. Its calls are bounded only by their context
// and Options.MaxRecvBytes, and are counted in the metrics if [Client] makes such
// calls too. [Client.Close] closes it.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }
