package httpserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/exporter-toolkit/web"
	"golang.org/x/net/netutil"
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
	// maxConnections is the greatest number of connections. The clients of one node need
	// far fewer. An idle one takes some 10 KiB.
	maxConnections = 1024
	// maxHTTP2Streams is the greatest number of requests on one connection at the
	// same time.
	maxHTTP2Streams = 32
)

// Serve serves handler on l until ctx ends, and closes l. Event streams then end at
// once, and other requests within a second. It returns nil, or an error if l fails.
//
// webConfig is empty, or the path of a file with TLS, authentication and a rate limit in the
// format of the Prometheus exporter toolkit, which applies it. If all connections are taken,
// further ones wait until one ends.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, webConfig string, logger *slog.Logger) error {
	defer l.Close() // the toolkit leaves it open after a bad configuration
	server := newServer(ctx, handler, logger)
	ended := shutDownAfter(ctx, server)
	limited := netutil.LimitListener(l, maxConnections)
	var err error
	if webConfig == "" {
		err = server.Serve(limited)
	} else {
		err = web.Serve(limited, server, &web.FlagConfig{WebConfigFile: &webConfig}, logger)
	}
	ended()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
}

func newServer(ctx context.Context, handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:        handler,
		ReadTimeout:    requestTimeout,
		WriteTimeout:   answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Streams},
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // errors of clients
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
}

// shutDownAfter shuts the server down after ctx ends. ended waits for that if it has
// begun, and otherwise prevents it.
func shutDownAfter(ctx context.Context, server *http.Server) (ended func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	return func() {
		if !stop() {
			<-done
		}
	}
}

// CheckAddress returns an error for an unusable address for [Listen].
func CheckAddress(address string) error {
	_, err := completeAddress(address)
	return err
}

// Listen listens on PORT, :PORT or HOST:PORT. Without a host, only this machine can connect, as
// answers can name the pods of the node. Port 0 means any free port.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	complete, err := completeAddress(address)
	if err != nil {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp", complete)
}

func completeAddress(address string) (string, error) {
	if !strings.Contains(address, ":") {
		address = ":" + address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("%q is not an address: want PORT, :PORT or HOST:PORT", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q is not a port: want 0 to 65535", port)
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port), nil
}
