package server_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		os.Exit(playRole())
	}
	goleak.VerifyTestMain(m)
}

// fixture is a pipeline and its server.
type fixture struct {
	testing.TB
	*kit.Pipeline
	dial func(context.Context, string) (net.Conn, error)
	// stopServer returns what Serve returned.
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
	listener := bufconn.Listen(64 << 10)
	f := newFixtureOn(t, p, o, listener)
	f.dial = func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }
	time.Sleep(500 * time.Millisecond)
	return f
}

func newFixtureOn(t testing.TB, p pipeline.Options, o server.Options, listener net.Listener) *fixture {
	t.Helper()
	f := &fixture{TB: t, Pipeline: kit.New(t, p)}
	o.Registerer = f.Metrics
	s, err := server.New(f.Pipeline.Pipeline, o)
	kit.Must(t, err)
	f.Start(t)
	f.stopServer = kit.Run(t, func(ctx context.Context) error { return s.Serve(ctx, listener) })
	return f
}

// connect returns a new connection.
func (f *fixture) connect() *grpc.ClientConn {
	f.Helper()
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(f.dial), grpc.WithNoProxy())
	kit.Must(f, err)
	f.Cleanup(func() { conn.Close() })
	return conn
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

// setLargePods adds pods whose messages fill the buffers of a connection.
func (f *fixture) setLargePods(n int) {
	for _, uid := range kit.UIDs(n) {
		pod := plegtest.Pod("", "c-"+string(uid)+"=running")
		pod.UID, pod.Name = uid, strings.Repeat("n", 40_000)
		f.Runtime.SetPod(pod)
	}
	kit.Relist(2)
}

// Some tests run this test binary again as another process, with a role.
const (
	roleVariable   = "PLEG_TEST_ROLE"
	socketVariable = "PLEG_TEST_SOCKET"

	roleWatch = "watch" // prints one line per event
)

func playRole() (exit int) {
	ctx, path := context.Background(), os.Getenv(socketVariable)
	c, err := client.New(path, client.Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for ev, err := range c.Watch(ctx, client.WatchOptions{Name: "child", Replay: true}) {
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(ev.Type, ev.PodUID, ev.ContainerID, ev.Missed)
	}
	return 0
}

func roleCommand(t *testing.T, role, socket string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	kit.Must(t, err)
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, socketVariable+"="+socket)
	return cmd
}
