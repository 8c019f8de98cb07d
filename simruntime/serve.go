package simruntime

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/unixsocket"
)

// handshakeTimeout is how long a connection may stay silent after it is made.
// A server waits for such connections before it has stopped.
const handshakeTimeout = 5 * time.Second

// streamWorkers is the number of goroutines that are kept for calls, so that not
// each call grows a new stack. More calls are served too.
const streamWorkers = 32

// requestWindow is more than any request. Given, it keeps the server from sending
// a ping for each, to find out how great a window it needs.
const requestWindow = 1 << 20

// Serve answers the CRI on a listener until ctx ends, then drops all
// connections, waits for the calls in flight to see it, closes the listener
// and returns context.Cause(ctx). A connection that has not sent anything yet
// may delay that by 5 s. It returns earlier only if the listener fails.
//
// The state is kept: serving again is a restart of the server whose pods have
// survived. Several listeners may be served at once.
func (rt *Runtime) Serve(ctx context.Context, l net.Listener) error {
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(rt.unary),
		grpc.MaxRecvMsgSize(rt.opts.MaxMessageBytes),
		grpc.MaxSendMsgSize(rt.opts.MaxMessageBytes),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.InitialWindowSize(requestWindow),
		grpc.InitialConnWindowSize(requestWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
	)
	cri.RegisterRuntimeServiceServer(srv, &service{rt: rt})
	cri.RegisterImageServiceServer(srv, &imageService{rt: rt})

	stopped := make(chan struct{})
	release := context.AfterFunc(ctx, func() {
		defer close(stopped)
		srv.Stop()
	})
	rt.opts.Logger.InfoContext(ctx, "simulated runtime serves", "address", l.Addr().String())
	err := srv.Serve(l)
	if !release() {
		<-stopped
	}
	rt.opts.Logger.InfoContext(ctx, "simulated runtime stopped", "address", l.Addr().String())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	srv.Stop()
	return fmt.Errorf("serve the simulated CRI: %w", err)
}

// ListenAndServe serves on a unix socket, which it makes with mode 0660 and
// removes when it returns. It replaces a socket that no process
// serves, but not one that is served, or a path that is not
// a socket.
func (rt *Runtime) ListenAndServe(ctx context.Context, socketPath string) error {
	l, err := unixsocket.Listen(ctx, socketPath)
	if err != nil {
		return fmt.Errorf("simulated runtime: %w", err)
	}
	return rt.Serve(ctx, l) // closing the listener removes the socket
}
