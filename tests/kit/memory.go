package kit

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Serve serves in memory, also in a bubble, until stop is called or the test ends. dial connects
// to it.
func Serve(t testing.TB, serve func(context.Context, net.Listener) error) (dial func(context.Context) (net.Conn, error), stop func() error) {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	return listener.DialContext, Run(t, func(ctx context.Context) error { return serve(ctx, listener) })
}

// Connect returns a gRPC connection to what dial reaches, until the test ends.
func Connect(t testing.TB, dial func(context.Context) (net.Conn, error), o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost", append(o, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))...)
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
