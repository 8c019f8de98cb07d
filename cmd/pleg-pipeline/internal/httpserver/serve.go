package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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
	return newGate(l, maxConnections), nil
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
	err := web.Serve(l, server, &web.FlagConfig{WebConfigFile: &webConfig}, quieter(logger))
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
}

// quieter drops log lines of the toolkit below Warn: the program prints its own notice
// about the address.
func quieter(logger *slog.Logger) *slog.Logger { return slog.New(warnings{logger.Handler()}) }

type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}
