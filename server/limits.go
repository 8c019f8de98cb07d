package server

import (
	"context"
	"net"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

// maxHealthCalls is the greatest number of calls of the health service at the same time: they
// are counted apart, so that a probe is answered while all other slots are taken.
const maxHealthCalls = 64

// limits are the connections of all listeners, and the calls on all connections together.
type limits struct {
	connections, watchers, health, calls slots
	metrics                              *metrics
}

func newLimits(o Options, m *metrics) *limits {
	return &limits{
		newSlots("connections", o.MaxConnections), newSlots("watchers", o.MaxWatchers),
		newSlots("health calls", maxHealthCalls), newSlots("calls", o.MaxCalls), m,
	}
}

// slots are a limited number of connections, or of calls of one kind.
type slots struct {
	what string
	free chan struct{}
}

func newSlots(what string, n int) slots { return slots{what, make(chan struct{}, n)} }

// acquire takes a slot for a call of a method, or returns the error that there are too many.
func (l *limits) acquire(method string) (release func(), err error) {
	p, refused := l.calls, l.metrics.refusedCalls
	switch {
	case method == plegv1.PLEG_Watch_FullMethodName:
		p, refused = l.watchers, l.metrics.refusedWatchers
	case strings.HasPrefix(method, "/grpc.health."):
		p = l.health
	}
	select {
	case p.free <- struct{}{}:
		return func() { <-p.free }, nil
	default:
		refused.Inc()
		return nil, status.Errorf(codes.ResourceExhausted, "too many %s: this server allows %d at a time", p.what, cap(p.free))
	}
}

// interceptUnary bounds the calls, and ends a call when closing ends.
func (l *limits) interceptUnary(closing context.Context) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		release, err := l.acquire(info.FullMethod)
		if err != nil {
			return nil, err
		}
		defer release()
		ending, cancel := untilClosing(ctx, closing)
		defer cancel()
		answer, err := handler(ending, request)
		return answer, unavailable(ending, err)
	}
}

// interceptStream does the same.
func (l *limits) interceptStream(closing context.Context) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		release, err := l.acquire(info.FullMethod)
		if err != nil {
			return err
		}
		defer release()
		ending, cancel := untilClosing(stream.Context(), closing)
		defer cancel()
		return unavailable(ending, handler(server, endingStream{stream, ending}))
	}
}

// endingStream is a stream that ends with ctx.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // gRPC gets the context from the stream
}

// Context implements [grpc.ServerStream].
func (s endingStream) Context() context.Context { return s.ctx }

// gate is a listener that closes connections above the limit at once: their clients try again.
type gate struct {
	net.Listener
	limits *limits

	mu   sync.Mutex
	open map[*gateConn]struct{}
}

func newGate(l net.Listener, limits *limits) *gate {
	return &gate{Listener: l, limits: limits, open: make(map[*gateConn]struct{})}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := g.admit(conn); c != nil {
			return c, nil
		}
		g.limits.metrics.refusedConnections.Inc()
		conn.Close()
	}
}

// admit returns nil if there are too many.
func (g *gate) admit(conn net.Conn) *gateConn {
	select {
	case g.limits.connections.free <- struct{}{}:
	default:
		return nil
	}
	c := &gateConn{conn, g}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[c] = struct{}{}
	g.limits.metrics.connections.Inc()
	return c
}

// closeAll closes all connections, also connections before their handshake, which gRPC leaves open.
func (g *gate) closeAll() {
	g.mu.Lock()
	var all []net.Conn
	for c := range g.open {
		all = append(all, c.Conn)
	}
	g.mu.Unlock()
	for _, c := range all {
		c.Close()
	}
}

// gateConn is a connection that counts until it is closed.
type gateConn struct {
	net.Conn
	gate *gate
}

// Close implements [net.Conn].
func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	if _, open := c.gate.open[c]; open {
		delete(c.gate.open, c)
		c.gate.limits.metrics.connections.Dec()
		<-c.gate.limits.connections.free
	}
	c.gate.mu.Unlock()
	return c.Conn.Close()
}
