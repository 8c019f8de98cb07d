package server

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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

func endUnary(closing context.Context) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, cancel := untilClosing(ctx, closing)
		defer cancel()
		response, err := handler(ctx, request)
		return response, unavailable(ctx, err)
	}
}

func endStream(closing context.Context) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, cancel := untilClosing(stream.Context(), closing)
		defer cancel()
		return unavailable(ctx, handler(server, &endingStream{stream, ctx}))
	}
}

// endingStream is a stream with another context.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // gRPC gets the context from the stream
}

// Context implements [grpc.ServerStream].
func (s *endingStream) Context() context.Context { return s.ctx }
