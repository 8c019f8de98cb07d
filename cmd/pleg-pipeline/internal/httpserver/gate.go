package httpserver

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"runtime"
	"sync"
)

const (
	// maxConnections is the greatest number of connections. The clients of one node need
	// far fewer. An idle one takes some 10 KiB.
	maxConnections = 1024
	// maxSpare is the greatest number of connections beyond that, which get only
	// the health paths.
	maxSpare = 64
	// yieldAfter is the number of connections after which others get their turn. Go then runs
	// about as many of them.
	yieldAfter = 64
)

// gate is a listener that keeps a limited number of connections. It never waits for a
// client: for one more connection it closes the one that has been longest without a request.
type gate struct {
	net.Listener
	accepted int

	mu   sync.Mutex
	open int
	// idle has the connections without a request; the first has been idle longest.
	idle *list.List
}

func newGate(l net.Listener) *gate { return &gate{Listener: l, idle: list.New()} }

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := g.admit(conn); admitted != nil {
			// A request that has arrived is read before its connection must make room.
			if g.accepted++; g.accepted%yieldAfter == 0 {
				runtime.Gosched()
			}
			return admitted, nil
		}
		_ = conn.Close()
	}
}

// admit returns nil if all connections have a request, the spare ones too.
func (g *gate) admit(conn net.Conn) *gatedConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= maxConnections && g.idle.Len() > 0 {
		longest := g.idle.Front().Value.(*gatedConn)
		g.drop(longest)
		_ = longest.Conn.Close() // the server then finds it closed
	}
	if g.open >= maxConnections+maxSpare {
		return nil
	}
	c := &gatedConn{Conn: conn, gate: g, spare: g.open >= maxConnections}
	c.place = g.idle.PushBack(c)
	g.open++
	return c
}

// drop forgets a connection. The caller holds the lock.
func (g *gate) drop(c *gatedConn) {
	if c.dropped {
		return
	}
	c.dropped = true
	g.open--
	g.leaveIdle(c)
}

func (g *gate) leaveIdle(c *gatedConn) {
	if c.place != nil {
		g.idle.Remove(c.place)
		c.place = nil
	}
}

// trackState is the server's report that a connection has got a request, or has none any more.
func (g *gate) trackState(conn net.Conn, state http.ConnState) {
	c, ok := plain(conn).(*gatedConn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.dropped {
		return
	}
	g.leaveIdle(c)
	if state == http.StateIdle {
		c.place = g.idle.PushBack(c)
	}
}

func plain(conn net.Conn) net.Conn {
	if encrypted, ok := conn.(*tls.Conn); ok {
		return encrypted.NetConn()
	}
	return conn
}

// gatedConn is a connection that takes a place until it is closed.
type gatedConn struct {
	net.Conn
	gate *gate
	// spare is set if it gets only the health paths.
	spare bool

	// The gate's lock guards these.

	place   *list.Element // nil while there is a request
	dropped bool
}

// Close implements [net.Conn].
func (c *gatedConn) Close() error {
	c.gate.mu.Lock()
	c.gate.drop(c)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

type spareKey struct{}

// markSpare marks the requests of a spare connection.
func markSpare(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := plain(conn).(*gatedConn); ok && c.spare {
		return context.WithValue(ctx, spareKey{}, true)
	}
	return ctx
}
