// Package server serves a pipeline to other programs on the node: the gRPC services
// pleg.v1.PLEG, health and reflection, on a unix socket.
//
// # Usage
//
//	s, err := server.New(pipe, server.Options{})
//	...
//	err = s.ListenAndServe(ctx, "/run/pleg-pipeline/pleg.sock") // beside pipe.Run
//
// The server neither runs nor ends the pipeline. Package client is the client of this service.
//
// # Bounds
//
// The server limits connections, calls per connection, watchers, other calls and the size of a
// request. Above the limit of watchers or calls it returns RESOURCE_EXHAUSTED and names the limit;
// above the limit of connections it closes the new connection. Calls of the health service count
// towards no limit of calls. Clients may request at most 10 lists of one pod in a second: further
// requests get RESOURCE_EXHAUSTED, and package client repeats them.
//
// Each watcher is a position in the log of the pipeline. A goroutine of its own reads the log and
// waits for the client, so that a client that does not read, or is stopped, delays nobody. A
// client stays connected as long as it answers keepalive pings.
//
// # Shutdown
//
// When the context of [Server.Serve] ends, every call ends with UNAVAILABLE, and then
// the connections close. If the pipeline ends first, its watchers get the events that
// were published, and then UNAVAILABLE.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/option"
)

const (
	// healthPeriod is the time between two updates of the health service.
	healthPeriod = time.Second
	// handshakeTimeout is the time in which a client must begin HTTP/2, unless
	// Options.Keepalive is shorter.
	handshakeTimeout = 5 * time.Second
	// maxIdle is the time after which a connection without a call is closed.
	maxIdle = 10 * time.Minute
	// maxHeaderBytes is the greatest size of the headers of a call.
	maxHeaderBytes = 16 << 10
	// readBuffer is the size of the buffer of each connection, in bytes. It is small: requests are
	// small, there may be many connections, and a full buffer could begin a call for each few
	// bytes.
	readBuffer = 512
	// relistsPerSecond is how many lists of one pod the clients may request together.
	relistsPerSecond = 10
	// minClientPing is the shortest time between two pings of a client.
	minClientPing = 5 * time.Second
)

// Server serves one pipeline. Create it with [New]. Its methods are safe for
// concurrent use.
type Server struct {
	pipe    *pipeline.Pipeline
	options Options
	log     *slog.Logger
	metrics *metrics
	limits  *limits
	relists *rate.Limiter
}

// New returns a server of p, which need not run yet. If an option is bad, the error names the
// option and wraps [pleg.ErrInvalidOption]; otherwise it says why the metrics could not be
// registered.
func New(p *pipeline.Pipeline, o Options) (*Server, error) {
	if p == nil {
		return nil, errors.New("new server: a pipeline is required")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new server: %w", option.Invalid(err))
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	return &Server{
		pipe: p, options: o, metrics: m, limits: newLimits(o, m), relists: rate.NewLimiter(relistsPerSecond, relistsPerSecond),
		log: o.Logger.With("part", "server"),
	}, nil
}

// Close ends a server whose Serve was never called: it unregisters the metrics. While Serve runs, and
// after it has returned, Close does nothing: the context of Serve ends the server. Close does not
// block.
func (s *Server) Close() { s.metrics.close() }

// ListenAndServe calls [Listen] and [Server.Serve]. It blocks until ctx ends, and removes the
// socket when it returns.
func (s *Server) ListenAndServe(ctx context.Context, path string) error {
	l, err := Listen(ctx, path)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// Serve serves on l until ctx ends. It then ends all calls, closes the connections within a
// second, and returns nil. It closes l in every case. Several calls can run at the same time.
//
// Serve returns earlier, with an error, if l fails.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.metrics.enter()
	defer s.metrics.leave()
	ended := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Calls in progress end with closing, not with ctx, so that each of them ends
	// with the same error.
	closing, shutDown := context.WithCancelCause(context.WithoutCancel(ctx))
	defer shutDown(nil)

	gate := newGate(l, s.limits)
	checks := health.NewServer()
	s.report(checks)
	srv := s.newGRPC(closing)
	plegv1.RegisterPLEGServer(srv, &service{Server: s})
	healthv1.RegisterHealthServer(srv, checks)
	reflection.Register(srv)

	s.log.InfoContext(ctx, "server started", "address", l.Addr().String())
	var parts errgroup.Group
	parts.Go(func() error {
		if err := srv.Serve(gate); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("serve on %v: %w", l.Addr(), err))
		}
		return nil
	})
	parts.Go(func() error { s.reportHealth(ctx, checks); return nil })
	<-ctx.Done()
	shutDown(errShuttingDown)
	s.stop(srv, gate)
	_ = parts.Wait() // the error of a part is the cause of ctx, or a consequence of the end
	s.log.InfoContext(ctx, "server stopped", "address", l.Addr().String())
	if ended.Err() != nil {
		return nil
	}
	return context.Cause(ctx)
}

// newGRPC returns a gRPC server whose calls end when closing does.
func (s *Server) newGRPC(closing context.Context) *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(insecure.NewCredentials()),
		grpc.MaxRecvMsgSize(maxRequestBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ReadBufferSize(readBuffer),
		grpc.MaxConcurrentStreams(uint32(s.options.MaxStreams)),
		grpc.ConnectionTimeout(min(handshakeTimeout, s.options.Keepalive)),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxIdle, Time: s.options.Keepalive, Timeout: s.options.Keepalive,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(s.limits.interceptUnary(closing)),
		grpc.StreamInterceptor(s.limits.interceptStream(closing)),
	)
}

// stop waits until the connections have ended, and closes connections that take longer than grace.
func (s *Server) stop(srv *grpc.Server, g *gate) {
	forced := make(chan struct{})
	force := time.AfterFunc(grace, func() {
		defer close(forced)
		g.closeAll()
		srv.Stop()
	})
	srv.GracefulStop()
	if !force.Stop() {
		<-forced
	}
}

func (s *Server) reportHealth(ctx context.Context, checks *health.Server) {
	ticker := time.NewTicker(healthPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.report(checks)
		case <-ctx.Done():
			return
		}
	}
}

// report passes the health of the pipeline to the health service.
func (s *Server) report(checks *health.Server) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if ok, _ := s.pipe.Healthy(); ok {
		status = healthv1.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", plegv1.PLEG_ServiceDesc.ServiceName} {
		checks.SetServingStatus(name, status)
	}
}

// errShuttingDown is the cause that ends the context of every call when the server
// ends.
var errShuttingDown = errors.New("the server is shutting down")

// untilClosing returns the context of a call that also ends when closing does.
func untilClosing(ctx, closing context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(closing, func() { cancel(context.Cause(closing)) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// unavailable replaces the error of a call that the end of the server ended with
// UNAVAILABLE.
func unavailable(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errShuttingDown) {
		return status.Error(codes.Unavailable, errShuttingDown.Error())
	}
	return err
}
