package httpserver

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxSilent is the greatest number of connections that have sent nothing. They take
	// 3 KiB, most of it in the kernel. It is large because, during a flood, a connection
	// must last until its client has sent the request.
	maxSilent = 8192
	// maxConnections is the greatest number of connections that have sent something. The
	// clients of one node need far fewer. An idle one takes some 10 KiB.
	maxConnections = 1024
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
		evicted := longestSilent(g.idle)
		if evicted == nil {
			return nil
		}
		g.drop(evicted)
		_ = evicted.Conn.Close() // the server then finds it closed
	}
	c := &gatedConn{Conn: conn}
	c.heard = func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		c.asks = true
		if c.place != nil {
			g.idle.MoveToBack(c.place)
		}
	}
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
		c.asks = false
		c.place = g.idle.PushBack(c)
	}
}

// longestSilent returns the first connection of a list that has sent nothing of a request,
// read or unread, or else the first; nil if there is none. It passes over few: while a flood
// of connections starves the server, those that ask must not be closed for those that do
// not.
func longestSilent(conns *list.List) *gatedConn {
	const most = 16
	for range min(most, conns.Len()) {
		first := conns.Front()
		if c := first.Value.(*gatedConn); !c.asks && !c.hasUnread() {
			return c
		}
		conns.MoveToBack(first)
	}
	if conns.Len() == 0 {
		return nil
	}
	return conns.Front().Value.(*gatedConn)
}

// gatedConn is a connection that takes a place until it is closed.
type gatedConn struct {
	net.Conn
	heard   func() // called for what the client sends
	release func() // may be called several times

	// The listener's lock guards these.

	place   *list.Element // nil while there is a request
	dropped bool
	asks    bool // the server has read a part of a request
}

// Read implements [net.Conn].
func (c *gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard()
	}
	return n, err
}

// hasUnread reports whether the client has sent something that waits to be read.
func (c *gatedConn) hasUnread() bool {
	conn, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	n := 0
	_ = raw.Control(func(fd uintptr) {
		n, _, _ = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return n > 0
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
	c.heard = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		c.asks = true
	}
	c.release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(c)
	}
	s.mu.Lock()
	if s.open.Len() >= maxSpare {
		evicted := longestSilent(s.open)
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
