package server

import (
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// maxRefusals is the greatest number of refused connections at the same time
	// whose calls get an error; further connections are closed at once.
	maxRefusals = 32
	// refusalAge is the time in which a refused client must make its call.
	refusalAge = time.Second
)

// gate is a listener that accepts a limited number of connections. It passes the
// others to a second listener, whose server refuses all calls.
type gate struct {
	net.Listener
	refused *refusals
	metrics *metrics
	open    *places
}

func newGate(l net.Listener, limit int, m *metrics) *gate {
	return &gate{
		Listener: l, metrics: m, open: newPlaces(limit),
		refused: &refusals{address: l.Addr(), conns: make(chan net.Conn), closed: make(chan struct{}), slots: make(chan struct{}, maxRefusals)},
	}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if counted := g.admit(conn); counted != nil {
			return counted, nil
		}
		g.metrics.refusedConnections.Inc()
		g.refused.add(conn)
	}
}

// admit counts the connection. It returns nil if there are too many.
func (g *gate) admit(conn net.Conn) net.Conn {
	c := &heldConn{Conn: conn, process: processOf(conn)}
	c.release = sync.OnceFunc(func() {
		g.open.release(c)
		g.metrics.connections.Dec()
	})
	if !g.open.acquire(c, c.process, func() { _ = c.Close() }) {
		return nil
	}
	g.metrics.connections.Inc()
	return c
}

// heldConn is a connection that takes a place until it is closed.
type heldConn struct {
	net.Conn
	process int32  // 0 if it is not known
	release func() // may be called several times
	refused atomic.Int64

	mu     sync.Mutex
	closed bool
	calls  map[*call]struct{}
}

// Read implements [net.Conn]. What it returns may begin a call for each few bytes, so that
// others get their turn first.
func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	runtime.Gosched()
	return n, err
}

// addCall makes the end of the connection release a call. It reports false if the connection
// has ended.
func (c *heldConn) addCall(called *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		c.calls = make(map[*call]struct{})
	}
	if !c.closed {
		c.calls[called] = struct{}{}
	}
	return !c.closed
}

func (c *heldConn) removeCall(called *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, called)
}

// Close implements [net.Conn].
func (c *heldConn) Close() error {
	c.release()
	c.mu.Lock()
	c.closed = true
	calls := slices.Collect(maps.Keys(c.calls))
	c.mu.Unlock()
	for _, called := range calls {
		called.release()
	}
	return c.Conn.Close()
}

// refusals is a listener for the refused connections.
type refusals struct {
	address net.Addr
	conns   chan net.Conn
	slots   chan struct{} // holds one value per connection
	once    sync.Once
	closed  chan struct{}
}

// add passes the connection to the server that refuses calls, or closes it.
func (r *refusals) add(conn net.Conn) {
	select {
	case r.slots <- struct{}{}:
	default:
		conn.Close()
		return
	}
	refused := &heldConn{Conn: conn, release: sync.OnceFunc(func() { <-r.slots })}
	select {
	case r.conns <- refused:
	case <-r.closed:
		_ = refused.Close()
	}
}

// Accept implements [net.Listener].
func (r *refusals) Accept() (net.Conn, error) {
	select {
	case conn := <-r.conns:
		return conn, nil
	case <-r.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (r *refusals) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

// Addr implements [net.Listener].
func (r *refusals) Addr() net.Addr { return r.address }

// newRefuser returns a server that refuses every call and says why.
func newRefuser(limit int) *grpc.Server {
	reason := status.Error(codes.ResourceExhausted, fmt.Sprintf("too many connections: this server takes %d at a time", limit))
	return grpc.NewServer(
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return reason }),
		grpc.ConnectionTimeout(refusalAge),
		grpc.MaxConcurrentStreams(1),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: refusalAge, MaxConnectionAgeGrace: refusalAge}),
		grpc.WaitForHandlers(true),
	)
}
