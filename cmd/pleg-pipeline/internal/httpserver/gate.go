package httpserver

import (
	"io"
	"net"
	"sync"
	"time"
)

const (
	// maxConnections is the number of connections at a time. What scrapes and
	// watches one node is far less.
	maxConnections = 256
	// refusalTime is how long a connection that is one too many may take to be
	// told so.
	refusalTime = 100 * time.Millisecond
)

const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n" +
	"Retry-After: 10\r\nConnection: close\r\nContent-Length: 21\r\n\r\ntoo many connections\n"

// gate is a listener that lets a bounded number of connections in.
type gate struct {
	net.Listener
	inside chan struct{} // holds one value for each connection
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
		case g.inside <- struct{}{}:
			return &admitted{Conn: conn, leave: sync.OnceFunc(func() { <-g.inside })}, nil
		default:
			refuse(conn)
		}
	}
}

// refuse answers whatever is asked. It reads first: some clients drop an answer
// that comes before they have asked, and closing a connection with something
// unread would take the answer back.
func refuse(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(refusalTime))
	if _, err := conn.Read(make([]byte, maxHeaderBytes)); err != nil {
		return
	}
	_, _ = io.WriteString(conn, tooMany)
}

type admitted struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (a *admitted) Close() error {
	defer a.leave()
	return a.Conn.Close()
}
