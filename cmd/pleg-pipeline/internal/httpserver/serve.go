package httpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
)

const (
	// shutdownTimeout lets a running scrape finish.
	shutdownTimeout = time.Second
	// requestTimeout is the time in which a client must send a request.
	requestTimeout = 10 * time.Second
	// answerTimeout is the time in which a client must read an answer.
	answerTimeout = 30 * time.Second
	// idleTimeout is how long a connection without a request is kept.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes is the greatest size of a request: the server reads no body.
	maxHeaderBytes = 16 << 10
	// maxHTTP2Streams is the greatest number of requests on one connection at the
	// same time.
	maxHTTP2Streams = 32
)

// Listen listens on an address of [ParseAddress]. It accepts a limited number of
// connections at the same time and answers others with 503.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &gate{l, make(chan struct{}, maxConnections)}, nil
}

// Serve serves handler on l until ctx ends, and closes l. Event streams then end at
// once, and other requests within a second. It returns nil, or an error if l fails.
// webConfig is empty or the path of a file with TLS and authentication, in the format
// of the Prometheus exporter toolkit. It is read again for every connection and
// request.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, webConfig string, logger *slog.Logger) error {
	server := &http.Server{
		Handler:        handler,
		ReadTimeout:    requestTimeout,
		WriteTimeout:   answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Streams},
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // errors of clients
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := web.Serve(l, server, &web.FlagConfig{WebConfigFile: &webConfig}, slog.New(warnings{logger.Handler()}))
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
}

// warnings drops log lines of the toolkit below Warn: the program prints its own notice
// about the address.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}

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
