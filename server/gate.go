package server

import (
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
)

const (
	// maxRefusals is how many connections are told at a time that they are too
	// many; what is more is closed without a word.
	maxRefusals = 32
	// refusalAge is how long a refused connection lives, to ask and be told.
	refusalAge = time.Second
)

// gate is a listener that lets a bounded number of connections in.
type gate struct {
	net.Listener
	refused *turnedAway
	max     int
	metrics *metrics

	mu   sync.Mutex
	open map[*countedConn]struct{}
}

func newGate(l net.Listener, limit int, m *metrics) *gate {
	return &gate{
		Listener: l, max: limit, metrics: m,
		refused: &turnedAway{address: l.Addr(), conns: make(chan net.Conn), closed: make(chan struct{}), free: make(chan struct{}, maxRefusals)},
		open:    make(map[*countedConn]struct{}),
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
		g.refused.take(conn)
	}
}

// admit counts the connection, or returns nil if there are too many.
func (g *gate) admit(conn net.Conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) >= g.max {
		return nil
	}
	c := &countedConn{Conn: conn, gate: g}
	g.open[c] = struct{}{}
	g.metrics.connections.Inc()
	return c
}

func (g *gate) closeAll() {
	g.mu.Lock()
	open := make([]*countedConn, 0, len(g.open))
	for c := range g.open {
		open = append(open, c)
	}
	g.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

func (g *gate) left(c *countedConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.open[c]; ok {
		delete(g.open, c)
		g.metrics.connections.Dec()
	}
}

// countedConn leaves the gate when it is closed.
type countedConn struct {
	net.Conn
	gate *gate
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.gate.left(c)
	return c.Conn.Close()
}

// turnedAway is a listener of the connections that were too many.
type turnedAway struct {
	address net.Addr
	conns   chan net.Conn
	free    chan struct{} // holds one value for each connection
	once    sync.Once
	closed  chan struct{}
}

// take hands the connection to who refuses it, or closes it.
func (t *turnedAway) take(conn net.Conn) {
	select {
	case t.free <- struct{}{}:
	default:
		conn.Close()
		return
	}
	var refused net.Conn = &refusedConn{Conn: conn, free: t.free}
	select {
	case t.conns <- refused:
	case <-t.closed:
		refused.Close()
	}
}

// Accept implements [net.Listener].
func (t *turnedAway) Accept() (net.Conn, error) {
	select {
	case conn := <-t.conns:
		return conn, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (t *turnedAway) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// Addr implements [net.Listener].
func (t *turnedAway) Addr() net.Addr { return t.address }

type refusedConn struct {
	net.Conn
	once sync.Once
	free chan struct{}
}

// Close implements [net.Conn].
func (c *refusedConn) Close() error {
	c.once.Do(func() { <-c.free })
	return c.Conn.Close()
}

// newRefuser returns a server that answers every call with the reason why the
// connection is not served.
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
