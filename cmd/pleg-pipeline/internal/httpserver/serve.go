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
	// shutdownTimeout lets a scrape that is under way end.
	shutdownTimeout = time.Second
	// requestTimeout is for a client that sends slowly.
	requestTimeout = 10 * time.Second
	// answerTimeout is for a client that reads slowly.
	answerTimeout = 30 * time.Second
	// idleTimeout is how long a connection without a request is kept.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes bounds a request: no body is read.
	maxHeaderBytes = 16 << 10
	// maxHTTP2Streams bounds the requests of one connection at a time.
	maxHTTP2Streams = 32
)

// Listen listens on an address of [ParseAddress]. It takes a bounded number of
// connections at a time and tells the others that they are too many.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newGate(l, maxConnections), nil
}

// Serve serves handler on l, which it closes, until ctx ends; streams end at
// once then, and other requests under way get a second. It returns nil then, and
// an error if l breaks. webConfig is the path of a file with TLS and
// authentication in the form of Prometheus' exporter toolkit, or empty. It is
// read again for every connection and request.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, webConfig string, logger *slog.Logger) error {
	server := &http.Server{
		Handler:        handler,
		ReadTimeout:    requestTimeout,
		WriteTimeout:   answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: maxHTTP2Streams},
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug), // what clients do wrong
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

// quieter drops what the toolkit says at its start; this program has its own
// words for it.
func quieter(logger *slog.Logger) *slog.Logger { return slog.New(warnings{logger.Handler()}) }

type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && w.Handler.Enabled(ctx, level)
}
