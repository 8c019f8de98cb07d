package server_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodetest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	goleak.VerifyTestMain(m)
}

// bed is a pipeline of a node and its server.
type bed struct {
	*testing.T
	node    *nodetest.Node
	pipe    *pipeline.Pipeline
	dial    func(context.Context, string) (net.Conn, error)
	endPipe func()
	end     func() error // ends the server
}

// newBed is for a bubble.
func newBed(t *testing.T, p pipeline.Options, o server.Options) *bed {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	b := newBedOn(t, p, o, listener)
	b.dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	time.Sleep(500 * time.Millisecond) // to be between two lists whenever the test acts
	return b
}

func newBedOn(t *testing.T, p pipeline.Options, o server.Options, listener net.Listener) *bed {
	t.Helper()
	b := &bed{T: t, node: nodetest.New()}
	p.Runtime = b.node
	var err error
	if b.pipe, err = pipeline.New(p); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(b.pipe, o)
	if err != nil {
		t.Fatal(err)
	}
	endPipe := start(b.pipe.Run)
	b.endPipe = func() { _ = endPipe() }
	b.end = start(func(ctx context.Context) error { return s.Serve(ctx, listener) })
	t.Cleanup(func() {
		if err := b.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("Serve = %v, want %v", err, context.Canceled)
		}
		b.endPipe()
	})
	return b
}

// start returns how to end what it starts, and with which error that does.
func start(run func(context.Context) error) (end func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
}

// connect returns a connection of its own.
func (b *bed) connect() *grpc.ClientConn {
	b.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(b.dial), grpc.WithNoProxy())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return conn
}

func (b *bed) client() plegv1.PLEGClient { return plegv1.NewPLEGClient(b.connect()) }

// watch returns a stream on which the subscription stands, or the error.
func (b *bed) watch(ctx context.Context, c plegv1.PLEGClient, r *plegv1.WatchRequest) (grpc.ServerStreamingClient[plegv1.WatchResponse], error) {
	stream, err := c.Watch(ctx, r)
	if err != nil {
		return nil, err
	}
	header, err := stream.Header()
	if err != nil {
		return nil, err
	}
	if header == nil { // the call ended without one
		_, err := stream.Recv()
		return nil, err
	}
	return stream, nil
}

func (b *bed) mustWatch(ctx context.Context, c plegv1.PLEGClient, r *plegv1.WatchRequest) grpc.ServerStreamingClient[plegv1.WatchResponse] {
	b.Helper()
	stream, err := b.watch(ctx, c, r)
	if err != nil {
		b.Fatal(err)
	}
	return stream
}

// relist lets n lists happen; it is for a bubble.
func (b *bed) relist(n int) {
	time.Sleep(time.Duration(n) * time.Second)
	synctest.Wait()
}
