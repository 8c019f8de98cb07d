package server

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxRefusals is the greatest number of refused connections at the same time
	// whose calls get an error; further connections are closed at once.
	maxRefusals = 32
	// refusalAge is the time in which a refused client must make its call.
	refusalAge = time.Second
)

// gate is a listener that accepts a limited number of connections, and some more whose
// calls are all refused.
type gate struct {
	net.Listener
	metrics *metrics
	open    *places
	refused atomic.Int64 // the number of connections whose calls are refused
}

func newGate(l net.Listener, limit int, m *metrics) *gate {
	return &gate{Listener: l, metrics: m, open: newPlaces(limit)}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &heldConn{Conn: conn, process: processOf(conn)}
		if g.admit(c) || g.refuse(c) {
			return c, nil
		}
		conn.Close()
	}
}

// admit counts the connection. It returns false if there are too many.
func (g *gate) admit(c *heldConn) bool {
	x := newPlace(c.process, c.closeNow)
	c.release = sync.OnceFunc(func() {
		g.open.release(x)
		g.metrics.connections.Dec()
	})
	if _, ok := g.open.acquire(x); !ok {
		return false
	}
	g.metrics.connections.Inc()
	return true
}

// refuse lets the connection make a call that is refused. It returns false if there are too
// many such connections.
func (g *gate) refuse(c *heldConn) bool {
	g.metrics.refusedConnections.Inc()
	c.refusal = status.Errorf(codes.ResourceExhausted, "too many connections: this server allows %d at a time", g.open.max)
	c.release = sync.OnceFunc(func() { g.refused.Add(-1) })
	if g.refused.Add(1) > maxRefusals {
		c.release()
		return false
	}
	time.AfterFunc(refusalAge, c.closeNow)
	return true
}

// heldConn is a connection that takes a place until it is closed.
type heldConn struct {
	net.Conn
	process any          // nil if it is not known
	refusal error        // of each call; nil if the connection is admitted
	release func()       // may be called several times
	refused atomic.Int64 // the number of refused calls
}

// Read implements [net.Conn]. What it returns may begin a call for each few bytes, so that
// others get their turn first.
func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	runtime.Gosched()
	return n, err
}

// closeNow closes the connection.
func (c *heldConn) closeNow() { _ = c.Close() }

// Close implements [net.Conn].
func (c *heldConn) Close() error {
	c.release()
	return c.Conn.Close()
}
