package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
)

const (
	// healthPeriod is how often the health service is told of the pipeline's.
	healthPeriod = time.Second
	// handshakeTimeout is how long a new connection may take to speak HTTP/2.
	handshakeTimeout = 5 * time.Second
	// maxIdle is how long a connection without a call is kept.
	maxIdle = 10 * time.Minute
	// maxHeaderBytes bounds the headers of a call.
	maxHeaderBytes = 16 << 10
	// minClientPing is how often a client may ask for a sign of life.
	minClientPing = 5 * time.Second
)

// Server serves one pipeline. Create it with [New]. Its methods are safe for
// concurrent use.
type Server struct {
	pipe     *pipeline.Pipeline
	options  Options
	log      *slog.Logger
	metrics  *metrics
	watchers chan struct{} // holds one value for each watcher
}

// New returns a server of p, which may run already or not. The error names the
// option that is bad, or says why the metrics could not be registered.
func New(p *pipeline.Pipeline, o Options) (*Server, error) {
	if p == nil {
		return nil, errors.New("new server: a pipeline is required")
	}
	if err := o.complete(); err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("new server: %w", err)
	}
	return &Server{
		pipe: p, options: o, metrics: m,
		log:      o.Logger.With("part", "server"),
		watchers: make(chan struct{}, o.MaxWatchers),
	}, nil
}

// Register adds service pleg.v1.PLEG to a gRPC server of the caller's. Bounds on
// connections and requests, health and reflection are then the caller's to add.
// Watch calls then end with the pipeline: end it before GracefulStop.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	plegv1.RegisterPLEGServer(r, &service{Server: s})
}

// ListenAndServe serves on a unix socket, as [Listen] and [Server.Serve] do. The
// socket is removed when it returns.
func (s *Server) ListenAndServe(ctx context.Context, path string) error {
	l, err := Listen(ctx, path)
	if err != nil {
		return err
	}
	return s.Serve(ctx, l)
}

// Serve answers on a listener, which it closes, until ctx ends; it then ends all
// streams and connections and returns the cause of ctx. It returns an error
// earlier only if the listener fails. Several listeners may be served at once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Calls in progress end by this one, and by nothing else that ends ctx.
	closing, shutDown := context.WithCancelCause(context.WithoutCancel(ctx))
	defer shutDown(nil)

	gate := newGate(l, s.options.MaxConnections, s.metrics)
	checks := health.NewServer()
	s.report(checks)
	srv := s.newGRPC(closing)
	s.Register(srv)
	healthv1.RegisterHealthServer(srv, checks)
	reflection.Register(srv)
	refuser := newRefuser(s.options.MaxConnections)

	s.log.InfoContext(ctx, "serving", "address", l.Addr().String())
	var parts errgroup.Group
	parts.Go(func() error {
		if err := srv.Serve(gate); err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("serve on %v: %w", l.Addr(), err))
		}
		return nil
	})
	parts.Go(func() error { return refuser.Serve(gate.refused) })
	parts.Go(func() error { s.reportUntil(ctx, checks); return nil })
	<-ctx.Done()
	checks.Shutdown()
	shutDown(errShuttingDown)
	s.stop(srv, gate)
	refuser.Stop()
	_ = parts.Wait() // what made a part end is the cause, or is the end itself
	s.log.InfoContext(ctx, "stopped serving", "address", l.Addr().String())
	return context.Cause(ctx)
}

// newGRPC returns a gRPC server whose calls end when closing does.
func (s *Server) newGRPC(closing context.Context) *grpc.Server {
	return grpc.NewServer(
		grpc.MaxRecvMsgSize(s.options.MaxRequestBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxConcurrentStreams(uint32(s.options.MaxStreams)),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: maxIdle, Time: s.options.Keepalive, Timeout: s.options.Keepalive,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.UnaryInterceptor(endUnary(closing)),
		grpc.StreamInterceptor(endStream(closing)),
	)
}

// stop lets the connections end in order, and those that do not in time by
// force.
func (s *Server) stop(srv *grpc.Server, g *gate) {
	forced := make(chan struct{})
	force := time.AfterFunc(s.options.Grace, func() {
		defer close(forced)
		// A connection that has not said anything yet is not gRPC's to close.
		g.closeAll()
		srv.Stop()
	})
	srv.GracefulStop()
	if !force.Stop() {
		<-forced
	}
}

func (s *Server) reportUntil(ctx context.Context, checks *health.Server) {
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

// report tells the health service how the pipeline is.
func (s *Server) report(checks *health.Server) {
	is := healthv1.HealthCheckResponse_NOT_SERVING
	if ok, _ := s.pipe.Healthy(); ok {
		is = healthv1.HealthCheckResponse_SERVING
	}
	for _, name := range []string{"", plegv1.PLEG_ServiceDesc.ServiceName} {
		checks.SetServingStatus(name, is)
	}
}
