package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// errShuttingDown is the cause of the context of every call once the server
// ends.
var errShuttingDown = errors.New("the server is shutting down")

// bounded returns a context of a call that ends when closing does too.
func bounded(ctx, closing context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	release := context.AfterFunc(closing, func() { cancel(context.Cause(closing)) })
	return ctx, func() {
		release()
		cancel(nil)
	}
}

// ended says UNAVAILABLE of a call that the end of the server cut off, whatever
// its handler made of it.
func ended(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errShuttingDown) {
		return status.Error(codes.Unavailable, errShuttingDown.Error())
	}
	return err
}

func endUnary(closing context.Context) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, cancel := bounded(ctx, closing)
		defer cancel()
		response, err := handler(ctx, request)
		return response, ended(ctx, err)
	}
}

func endStream(closing context.Context) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := bounded(stream.Context(), closing)
		defer cancel()
		return ended(ctx, handler(server, &boundedStream{stream, ctx}))
	}
}

// boundedStream is a stream with another context.
type boundedStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // gRPC asks the stream for it
}

// Context implements [grpc.ServerStream].
func (s *boundedStream) Context() context.Context { return s.ctx }
