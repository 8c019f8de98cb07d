package server_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a pipeline and its server.
type fixture struct {
	*testing.T
	*kit.Pipeline
	dial func(context.Context) (net.Conn, error)
	// stopServer returns the error of Serve.
	stopServer func() error
	changes    int // by wantEvent
}

// inBubble runs a test with a pipeline and its server in a synctest bubble. The test acts in
// the middle between two lists.
func inBubble(t *testing.T, p pipeline.Options, o server.Options, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newFixture(t, p, o)) })
}

func newFixture(t *testing.T, p pipeline.Options, o server.Options) *fixture {
	t.Helper()
	f := &fixture{T: t, Pipeline: kit.New(t, p)}
	o.Registerer = f.Metrics
	s, err := server.New(f.Pipeline.Pipeline, o)
	kit.Must(t, err)
	f.Start(t)
	f.dial, f.stopServer = kit.Serve(t, s.Serve)
	time.Sleep(500 * time.Millisecond)
	return f
}

// connect returns a new connection.
func (f *fixture) connect() *grpc.ClientConn {
	f.Helper()
	return kit.Connect(f, f.dial, grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second})) // as clients may
}

func (f *fixture) client() plegv1.PLEGClient { return plegv1.NewPLEGClient(f.connect()) }

// watch returns a stream whose subscription exists, or the error.
func (f *fixture) watch(ctx context.Context, c plegv1.PLEGClient, r *plegv1.WatchRequest) (grpc.ServerStreamingClient[plegv1.WatchResponse], error) {
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

func (f *fixture) mustWatch(ctx context.Context, c plegv1.PLEGClient, r *plegv1.WatchRequest) grpc.ServerStreamingClient[plegv1.WatchResponse] {
	f.Helper()
	stream, err := f.watch(ctx, c, r)
	kit.Must(f, err)
	return stream
}

// wantEvent changes a pod and requires that these streams get the event next.
func (f *fixture) wantEvent(what string, streams ...grpc.ServerStreamingClient[plegv1.WatchResponse]) {
	f.Helper()
	f.changes++
	id := fmt.Sprintf("changed-%d", f.changes)
	f.Runtime.Set(pleg.PodUID(id), id+"=running")
	for _, stream := range streams {
		if m, err := stream.Recv(); err != nil || m.GetEvent().GetContainerId() != id {
			f.Errorf("%s got %v, %v, want an event of %s", what, m, err, id)
		}
	}
}

// setLargePods adds pods whose messages fill the buffers of a connection, one at each list.
func (f *fixture) setLargePods(n int) {
	for _, uid := range kit.UIDs(n) {
		pod := plegtest.Pod("", "c-"+string(uid)+"=running")
		pod.UID, pod.Name = uid, strings.Repeat("n", 40_000)
		f.Runtime.SetPod(pod)
		kit.Relist(1)
	}
}
