package simruntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Errors of the control API.
var (
	// ErrNotFound is returned when nothing with the id exists.
	ErrNotFound = errors.New("not found")
	// ErrState is returned when the object exists but is in a state that does
	// not allow the step, such as starting an exited container.
	ErrState = errors.New("wrong state")
)

// Options configure a [Runtime]. The zero value is a runtime without latency,
// without limits and without faults.
type Options struct {
	// Seed determines ids, UIDs, names and injected probabilities.
	// Zero is a seed like any other.
	Seed uint64

	// Faults are injected from the beginning, such as [BusyNode].
	Faults []Fault

	// DeletedLinger is how long a sandbox stays listed (NOTREADY) after its
	// DELETED event (containerd: up to 4 ms). If zero, the sandbox goes before the event.
	DeletedLinger time.Duration

	// StatusesInSandbox lets PodSandboxStatus carry the statuses of the containers and
	// a timestamp, as CRI-O does with pod events.
	StatusesInSandbox bool

	// DualStack gives each pod an IPv6 address besides its IPv4 address.
	DualStack bool

	// MaxMessageBytes bounds one answer; a longer answer fails with ResourceExhausted. If zero, 16
	// MiB, as in containerd and the kubelet.
	MaxMessageBytes int

	// Logger logs starts and stops. If nil, nothing is logged.
	Logger *slog.Logger
}

// Runtime is a simulated container runtime: pods, sandboxes and containers,
// the faults injected, and the counters. It starts no goroutine;
// [Runtime.Serve] and [Runtime.Churn] work while they are called. All methods
// may be called from any number of goroutines.
//
// Inside a synctest bubble, create it in the bubble.
type Runtime struct {
	opts   Options
	faults *faultSet
	limit  atomic.Pointer[semaphore.Weighted]
	stats  *counters
	hub    *hub

	mu    sync.RWMutex // guards state
	state State
}

// New returns a runtime without pods.
func New(opts Options) *Runtime {
	opts.MaxMessageBytes = cmp.Or(opts.MaxMessageBytes, 16<<20)
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	stats := &counters{called: make(chan struct{}), s: Stats{RPCs: map[string]RPCStats{}}}
	rt := &Runtime{
		opts:   opts,
		faults: &faultSet{seed: opts.Seed},
		stats:  stats,
		hub:    &hub{rng: newRand(opts.Seed, "events"), dropped: stats.dropEvent},
	}
	rt.state = State{rt: rt, rng: newRand(opts.Seed, "state"), pods: map[pleg.PodUID]*sandbox{}, byID: map[string]object{}}
	rt.SetMaxConcurrent(0)
	for _, f := range opts.Faults {
		rt.Inject(f)
	}
	return rt
}

// newRand returns a separate sequence for each use of the seed, so that one use
// does not affect another.
func newRand(seed uint64, use string) *rand.Rand {
	stream := fnv.New64a()
	_, _ = stream.Write([]byte(use)) // a hash returns no error
	return rand.New(rand.NewPCG(seed, stream.Sum64()))
}

// handshakeTimeout is how long a connection may stay silent after it is made.
// A server waits for such connections before it has stopped.
const handshakeTimeout = 5 * time.Second

// streamWorkers is the number of goroutines that are kept for calls, so that not
// each call grows a new stack. More calls are served too.
const streamWorkers = 32

// requestWindow is more than any request. A fixed window keeps the server from sending a ping on
// each connection to find out how great a window it needs.
const requestWindow = 1 << 20

// Serve answers the CRI on a listener until ctx ends, then drops all
// connections, waits for the calls in flight to see it, closes the listener
// and returns context.Cause(ctx). A connection that has not sent anything yet
// may delay that by 5 s. It returns earlier only if the listener fails.
//
// The state is kept: serving again is a restart of the server whose pods have
// survived. Several listeners may be served at once.
func (rt *Runtime) Serve(ctx context.Context, l net.Listener) error {
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(rt.unary),
		grpc.MaxRecvMsgSize(rt.opts.MaxMessageBytes),
		grpc.MaxSendMsgSize(rt.opts.MaxMessageBytes),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InitialWindowSize(requestWindow),
		grpc.InitialConnWindowSize(requestWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
	)
	cri.RegisterRuntimeServiceServer(srv, rt.Service())
	cri.RegisterImageServiceServer(srv, imageService{})

	stopped := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(stopped)
		srv.Stop()
	})
	rt.opts.Logger.InfoContext(ctx, "simulated runtime serves", "address", l.Addr().String())
	err := srv.Serve(l)
	if !release() {
		<-stopped
	}
	rt.opts.Logger.InfoContext(ctx, "simulated runtime stopped", "address", l.Addr().String())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	srv.Stop()
	return fmt.Errorf("serve the simulated CRI: %w", err)
}

// ListenAndServe serves on a unix socket, which it makes with mode 0660 and removes when it
// returns. It replaces a socket that no process serves, but no socket that is served, and no path
// that is not a socket.
func (rt *Runtime) ListenAndServe(ctx context.Context, socketPath string) error {
	l, err := unixsocket.Listen(ctx, socketPath)
	if err != nil {
		return fmt.Errorf("simulated runtime: %w", err)
	}
	return rt.Serve(ctx, l) // closing the listener removes the socket
}
