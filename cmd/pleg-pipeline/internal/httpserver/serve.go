package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
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

// Serve serves handler on l until ctx ends, and closes l. Event streams then end at
// once, and other requests within a second. It returns nil, or an error if l fails.
//
// It keeps a limited number of connections. If all are taken, it closes the one that has been
// longest without a request. If all have one, further connections get only the health paths,
// and 503 for everything else.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, access *Access, logger *slog.Logger) error {
	config, err := readWebConfig(access.path)
	if err != nil {
		l.Close()
		return err
	}
	gate := newGate(l)
	server := newServer(ctx, spareHealth(access.guard(handler, logger)), logger)
	server.ConnState, server.ConnContext = gate.trackState, markSpare
	ended := shutDownAfter(ctx, server)
	if config.TLSConfig.IsEnabled() {
		server.TLSConfig = &tls.Config{GetConfigForClient: access.tlsConfig, MinVersion: tls.VersionTLS12}
		err = server.ServeTLS(gate, "", "")
	} else {
		err = server.Serve(gate)
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

// spareHealth answers one request on a spare connection, for a health path only.
func spareHealth(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Value(spareKey{}) != nil {
			w.Header().Set("Connection", "close")
			if !isHealth(r.URL.Path) {
				unavailable(w, fmt.Sprintf("too many connections: %d at a time", maxConnections))
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}
