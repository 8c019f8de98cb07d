package httpserver

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxConnections is the greatest number of connections at the same time. The
	// clients of one node need far fewer.
	maxConnections = 256
	// refusalTime is the time in which a refused client must send its request and
	// read the answer.
	refusalTime = 100 * time.Millisecond
)

const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Retry-After: 10\r\nConnection: close\r\nContent-Length: 21\r\n\r\ntoo many connections\n"

// gate is a listener that accepts a limited number of connections and refuses others.
type gate struct {
	net.Listener
	open chan struct{} // holds one value per connection
}

func newGate(l net.Listener, limit int) *gate {
	return &gate{l, make(chan struct{}, limit)}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case g.open <- struct{}{}:
			return &countedConn{Conn: conn, release: sync.OnceFunc(func() { <-g.open })}, nil
		default:
			refuse(conn)
		}
	}
}

// refuse answers any request with 503. It reads first: some clients ignore an answer
// that precedes their request, and closing a connection with unread data would discard
// the answer.
func refuse(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(refusalTime))
	if _, err := conn.Read(make([]byte, maxHeaderBytes)); err != nil {
		return
	}
	_, _ = io.WriteString(conn, tooMany)
}

// countedConn is a connection that the gate has accepted.
type countedConn struct {
	net.Conn
	release func()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
