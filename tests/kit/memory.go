package kit

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// Memory is a socket in memory, which works in a bubble. Servers listen on it one after the other.
type Memory struct {
	last atomic.Pointer[bufconn.Listener]
}

// Listen returns a listener, to which Dial connects from now on.
func (m *Memory) Listen() net.Listener {
	l := bufconn.Listen(64 << 10)
	m.last.Store(l)
	return l
}

// Dial connects to the last listener, whatever the address.
func (m *Memory) Dial(ctx context.Context, _ string) (net.Conn, error) {
	return m.last.Load().DialContext(ctx)
}

// Serve serves in memory, also in a bubble, until stop is called or the test ends. dial connects
// to it.
func Serve(t testing.TB, serve func(context.Context, net.Listener) error) (dial func(context.Context) (net.Conn, error), stop func() error) {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	return listener.DialContext, Run(t, func(ctx context.Context) error { return serve(ctx, listener) })
}

// GRPC runs a server on a listener until ctx ends.
func GRPC(server *grpc.Server) func(context.Context, net.Listener) error {
	return func(ctx context.Context, l net.Listener) error {
		defer context.AfterFunc(ctx, server.Stop)()
		return server.Serve(l)
	}
}

// Connect returns a gRPC connection to the server that dial reaches, until the test ends.
func Connect(t testing.TB, dial func(context.Context) (net.Conn, error), o ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost", append(o, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))...)
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
