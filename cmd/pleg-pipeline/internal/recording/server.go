package recording

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
)

// quiet is how long after the end of the recording the client may still make the calls that follow
// from its last lists.
const quiet = 500 * time.Millisecond

// Server is a container runtime that answers as recorded.
type Server struct {
	recording *Recording

	mu    sync.Mutex
	zero  time.Time      // the wall time at which the time of the recording was 0
	next  int            // the round that comes next
	shown round          // the round before that
	asked [2]bool        // the lists of the round that have been asked for
	given map[string]int // how many answers to each question are used up
}

// NewServer returns a server that plays r from now on.
func NewServer(r *Recording) *Server {
	return &Server{recording: r, zero: time.Now(), asked: [2]bool{true, true}, given: make(map[string]int)}
}

// Serve answers on listener, which it closes, until ctx ends. Then it cancels the calls in flight
// and returns the cause.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.UnknownServiceHandler(s.handle))
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		server.Stop()
	})()
	err := server.Serve(listener)
	if ctx.Err() != nil {
		<-stopped
		return context.Cause(ctx)
	}
	return fmt.Errorf("serve a recording: %w", err)
}

// WaitPlayed waits until the recording has been played: each list that differs from the previous
// list has been asked for, and the client had the time to make the calls that follow. It returns
// the cause of ctx if that ends before.
func (s *Server) WaitPlayed(ctx context.Context) error {
	return cmp.Or(s.waitUntil(ctx, s.recording.Length), backoff.Wait(ctx, quiet))
}

// handle answers any call. There are no events and no streamed lists.
func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	method := path.Base(name)
	m, ok := methods[method]
	if !ok || path.Dir(name) != "/"+cri.RuntimeService_ServiceDesc.ServiceName {
		return status.Errorf(codes.Unimplemented, "a replay does not have %s", name)
	}
	request := empty(m.request)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	answer := s.choose(method, request)
	if answer == nil {
		return status.Errorf(codes.Unavailable, "the recording has no answer of %s for this", method)
	}
	if err := s.play(stream.Context(), answer); err != nil {
		return err
	}
	return stream.SendMsg(answer.reply)
}

// play waits for the time of an answer and for as long as the call took, and returns its error.
// A call that was not answered hangs.
func (s *Server) play(ctx context.Context, c *call) error {
	if c.pending {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := s.waitUntil(ctx, c.at); err != nil {
		return err
	}
	return cmp.Or(backoff.Wait(ctx, c.took), c.err)
}
