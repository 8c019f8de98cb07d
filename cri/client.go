package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/instrument"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var (
	_ pleg.Runtime      = (*Client)(nil)
	_ pleg.PodLister    = (*Client)(nil)
	_ pleg.EventWatcher = (*Client)(nil)
	_ pleg.Prober       = (*Client)(nil)
	_ pleg.Reporter     = (*Client)(nil)
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
	events   *grpc.ClientConn
	observed *observed // the connections of conn
	runtime  runtimeapi.RuntimeServiceClient
	// watched is the time at which the first event stream was requested; nil before.
	watched atomic.Pointer[time.Time]
	// lists holds the state of the lists while no list is running.
	lists chan *lists
	// last is the result of the last list; nil before the first.
	last atomic.Pointer[lastList]
	// unlisted are the sandboxes that a container names and no list contains, each an
	// unlistedSandbox by its id.
	unlisted sync.Map
	// degraded says which lists are made in portions; nil if none is.
	degraded atomic.Pointer[error]
	// seen are the sandboxes that single-pod lists have shown since the last list of all pods. A list
	// in portions asks for them by id: there is no other way to find a new sandbox without a
	// container yet, and a sandbox that no list shows counts as gone.
	seen     chan string
	inFlight inFlight
}

// New returns a client of the runtime at endpoint, which is unix:///path or an absolute path. It does
// not connect: the first call does, and each further one if the connection was lost. The error names
// the invalid argument or option. The caller must call [Client.Close].
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
		observed: newObserved(),
		endpoint: endpoint,
		socket:   socket,
		opts:     opts,
		metrics:  m,
		lists:    make(chan *lists, 1),
		seen:     make(chan string, maxSeen),
		inFlight: inFlight{calls: make(map[*pleg.Call]struct{})},
	}
	c.conn, err = dial(socket, opts, grpc.WithTransportCredentials(c.observed), grpc.WithChainUnaryInterceptor(m.intercept),
		grpc.WithInitialWindowSize(answerWindow), grpc.WithInitialConnWindowSize(answerWindow), grpc.WithReadBufferSize(readBuffer))
	if err == nil {
		c.events, err = dial(socket, opts, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithChainUnaryInterceptor(m.intercept),
			grpc.WithInitialWindowSize(eventWindow), grpc.WithInitialConnWindowSize(eventWindow))
	}
	if err != nil { // a bad dial option
		m.unregister()
		return nil, fmt.Errorf("cri: endpoint %s: %w", endpoint, err)
	}
	c.runtime = runtimeapi.NewRuntimeServiceClient(c.conn)
	c.lists <- newLists(c)
	return c, nil
}

// Report implements [pleg.Reporter]. Degraded is set while something works only by a fallback:
//
//   - A list is too large for one answer (16 MiB in containerd, including annotations). The error wraps
//     [pleg.ErrListTooLarge]. A sandbox without a container may be found late.
//   - The socket does not exist although a connection is open: no other program reaches the runtime.
//
// Calls are lists and statuses, without the event stream.
func (c *Client) Report() pleg.Report {
	calls := c.inFlight.list()
	return pleg.Report{Endpoint: c.endpoint, Degraded: c.fallback(), Details: nodestate.State{Process: c.process(len(calls) > 0 || c.metrics.failed.Load())}, Calls: calls}
}

// Close closes the connections and unregisters the metrics. Calls in flight fail with the code
// Canceled; Close does not wait for them.
func (c *Client) Close() error {
	err := errors.Join(c.conn.Close(), c.events.Close())
	c.metrics.unregister()
	return err
}

// Conn returns the connection to the runtime, for CRI calls without a method here, such as Status.
// Its calls are bounded only by their context and Options.MaxRecvBytes, and are counted in the metrics
// if [Client] makes such calls too. [Client.Close] closes it.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// maxSeen bounds the sandboxes that are remembered until the next list.
const maxSeen = 1024

// maxSocketPath is the longest path that fits into a sockaddr_un of Linux with its final zero.
const maxSocketPath = 107

// The client tries a lost connection again within reconnectMax, without the long
// backoff for a remote server: an attempt on a unix socket takes microseconds.
const (
	reconnectFirst = 50 * time.Millisecond
	reconnectMax   = 100 * time.Millisecond
)

// answerWindow is how many bytes of an answer the runtime may send before this client reads them. With
// grpc's default of 64 KiB, a list of 110 pods (350 kB) stops several times for a window update.
const answerWindow = 4 << 20

// readBuffer is the capacity of a unix socket of Linux. With grpc's default of 32 KiB, an idle
// relist of 5000 pods takes a tenth more CPU time.
const readBuffer = 256 << 10

func socketPath(endpoint string) (string, error) {
	p := strings.TrimPrefix(endpoint, "unix://")
	if !path.IsAbs(p) {
		return "", fmt.Errorf("cri: endpoint %q is not a unix socket: want unix:///path/to/socket or /path/to/socket", endpoint)
	}
	if len(p) > maxSocketPath {
		return "", fmt.Errorf("cri: endpoint %q: the path of a unix socket has at most %d bytes, this has %d", endpoint, maxSocketPath, len(p))
	}
	return p, nil
}

// dial prepares a connection, which the first call makes. Each attempt opens the path
// again, so it finds a socket that was replaced.
func dial(socket string, opts Options, own ...grpc.DialOption) (*grpc.ClientConn, error) {
	dialOptions := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(opts.MaxRecvBytes)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: reconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: reconnectMax,
			},
			// Longer than the call of Check, so that Check ends by its own deadline.
			MinConnectTimeout: opts.ConnectTimeout + reconnectMax,
		}),
	}
	target := url.URL{Scheme: "unix", Path: socket} // the path may contain characters that a URL may not
	return grpc.NewClient(target.String(), slices.Concat(dialOptions, own, opts.DialOptions)...)
}

// connection is a connection to a runtime, and the facts about that runtime: the next connection
// may be to an upgraded runtime, or to another one.
type connection struct {
	// made is zero for the first connection: older statuses do not exist.
	made time.Time
	pid  int  // of the process at the other end
	unix bool // the connection is to a unix socket: a dialer may make others
	// uncarried is true if the last sandbox status did not carry the statuses of its containers.
	uncarried atomic.Bool
	// hasEvents is set once an event stream has sent an event, or has lived longer than the stream
	// of a runtime whose events are switched off. noEvents is the reason why the runtime sends
	// none.
	hasEvents atomic.Bool
	noEvents  atomic.Pointer[error]
}

// observed notes the last connection.
type observed struct {
	credentials.TransportCredentials
	first *connection // stands for the first connection until that exists
	last  atomic.Pointer[connection]
}

func newObserved() *observed {
	o := &observed{TransportCredentials: insecure.NewCredentials(), first: &connection{}}
	o.last.Store(o.first)
	return o
}

// ClientHandshake is called once for each connection.
func (o *observed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c := &connection{pid: unixsocket.Server(conn), unix: conn.RemoteAddr().Network() == "unix"}
	if o.last.Load() != o.first {
		c.made = time.Now()
	}
	o.last.Store(c)
	return o.TransportCredentials.ClientHandshake(ctx, authority, conn)
}

// Clone keeps the observed connection: grpc clones the credentials it is given.
func (o *observed) Clone() credentials.TransportCredentials { return o }
