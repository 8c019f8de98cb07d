package cri

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
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

// Client calls one container runtime. It is safe for concurrent use; lists are
// made one after the other.
type Client struct {
	endpoint string
	socket   string
	opts     Options
	metrics  *metrics
	conn     *grpc.ClientConn
	// events is a connection for the stream of events alone, made for its first
	// use, so that neither it nor the lists wait for each other's bytes.
	events *grpc.ClientConn
	// connections is the number of connections that conn has had.
	connections atomic.Int64
	runtime     runtimeapi.RuntimeServiceClient
	codec       listCodec
	answers     answerCodec
	// lists holds the one list state while no list is under way.
	lists chan *lists
	// known is what the last list showed; nil before the first.
	known atomic.Pointer[known]
	// strangers counts the events that told of containers without the kubelet's
	// label, strangersListed is the count when the last list began.
	strangers, strangersListed atomic.Int64
	degraded                   atomic.Pointer[error]
	sightings                  sightings
	// calls holds one value for each status call in flight that counts.
	calls chan struct{}
}

// New returns a client of the runtime at endpoint, which is unix:///path or an
// absolute path. It does not connect: the first call does, and after a loss
// each further one. [Client.Check] tells whether a runtime answers. The error
// names the argument or the option that is wrong.
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
		answers:  newAnswerCodec(),
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

// Close ends the connection; calls under way fail with the code Canceled.
func (c *Client) Close() error {
	return errors.Join(c.conn.Close(), c.events.Close())
}

// Version is what a runtime says of itself.
type Version struct {
	// RuntimeName is such as containerd or cri-o.
	RuntimeName    string
	RuntimeVersion string
	// APIVersion is the CRI version, v1.
	APIVersion string
}

// Check asks the runtime for its version, for at most Options.ConnectTimeout.
// The error says what is wrong with the endpoint; the grpc code stays reachable
// with status.FromError.
func (c *Client) Check(ctx context.Context) (Version, error) {
	callCtx, cancel := context.WithTimeout(ctx, c.opts.ConnectTimeout)
	defer cancel()
	var server peer.Peer
	answer, err := c.runtime.Version(callCtx, &runtimeapi.VersionRequest{}, grpc.Peer(&server))
	if err != nil {
		return Version{}, c.explain(ctx, err, server.Addr != nil)
	}
	return Version{
		RuntimeName:    answer.GetRuntimeName(),
		RuntimeVersion: answer.GetRuntimeVersion(),
		APIVersion:     answer.GetRuntimeApiVersion(),
	}, nil
}
