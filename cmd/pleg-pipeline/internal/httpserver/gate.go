package httpserver

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections is the greatest number of connections at the same time. The
	// clients of one node need far fewer.
	maxConnections = 256
	// maxSpare is the greatest number of connections beyond that, which get only
	// the health paths. The next one replaces the oldest.
	maxSpare = 64
	// spareTimeout is the time for the request and for the answer on a spare
	// connection.
	spareTimeout = time.Second
)

// gate is a listener that keeps a limited number of connections. It never waits for a
// client, so that a flood of connections does not delay the ones behind it.
type gate struct {
	net.Listener
	spare *spareListener

	mu   sync.Mutex
	open int
	// idle has the connections without a request; the first has been idle longest.
	idle *list.List
}

func newGate(l net.Listener) *gate {
	return &gate{
		Listener: l, idle: list.New(),
		spare: &spareListener{address: l.Addr(), conns: make(chan net.Conn), closed: make(chan struct{}), open: list.New()},
	}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if admitted := g.admit(conn); admitted != nil {
			return admitted, nil
		}
		g.spare.add(conn)
	}
}

// admit returns nil if all connections have a request.
func (g *gate) admit(conn net.Conn) *gatedConn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open >= maxConnections {
		oldest := g.idle.Front()
		if oldest == nil {
			return nil
		}
		evicted := oldest.Value.(*gatedConn)
		g.drop(evicted)
		_ = evicted.Conn.Close() // the server then finds it closed
	}
	c := &gatedConn{Conn: conn}
	c.release = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.drop(c)
	}
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
	if c.place != nil {
		g.idle.Remove(c.place)
		c.place = nil
	}
}

// note is the server's report that a connection has got a request, or has none any more.
func (g *gate) note(conn net.Conn, state http.ConnState) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn()
	}
	c, ok := conn.(*gatedConn)
	if !ok || state != http.StateActive && state != http.StateIdle {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.dropped {
		return
	}
	if c.place != nil {
		g.idle.Remove(c.place)
		c.place = nil
	}
	if state == http.StateIdle {
		c.place = g.idle.PushBack(c)
	}
}

// gatedConn is a connection that takes a place until it is closed.
type gatedConn struct {
	net.Conn
	release func() // may be called several times

	// The listener's lock guards these.

	place   *list.Element // nil while there is a request
	dropped bool
}

// Close implements [net.Conn].
func (c *gatedConn) Close() error {
	c.release()
	return c.Conn.Close()
}

// spareListener has the newest connections beyond the limit of the gate.
type spareListener struct {
	address net.Addr
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}

	mu   sync.Mutex
	open *list.List // the first is the oldest
}

// add passes the connection to the spare server, which always accepts.
func (s *spareListener) add(conn net.Conn) {
	c := &gatedConn{Conn: conn}
	c.release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(c)
	}
	s.mu.Lock()
	if s.open.Len() >= maxSpare {
		evicted := s.open.Front().Value.(*gatedConn)
		s.drop(evicted)
		_ = evicted.Conn.Close()
	}
	c.place = s.open.PushBack(c)
	s.mu.Unlock()
	select {
	case s.conns <- c:
	case <-s.closed:
		_ = c.Close()
	}
}

// drop forgets a connection. The caller holds the lock.
func (s *spareListener) drop(c *gatedConn) {
	if c.place != nil {
		s.open.Remove(c.place)
		c.place = nil
	}
}

// Accept implements [net.Listener].
func (s *spareListener) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (s *spareListener) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// Addr implements [net.Listener].
func (s *spareListener) Addr() net.Addr { return s.address }
