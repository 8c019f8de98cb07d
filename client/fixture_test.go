package client_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/plegtest"
	"github.com/pleg-pipeline/pleg-pipeline/server"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var errDown = errors.New("the server is down")

// fixture is a runtime whose pipeline and server can be restarted, and a client.
type fixture struct {
	*testing.T
	runtime *plegtest.Runtime
	client  *client.Client
	pipe    *kit.Pipeline

	stopServer func() error

	mu       sync.Mutex
	listener *bufconn.Listener // nil while the server is down
	conns    []net.Conn

	frozen atomic.Pointer[chan struct{}] // nil if the daemon was never stopped
}

// inBubble runs a test with a pipeline and a server in a synctest bubble. The test acts in
// the middle between two lists.
func inBubble(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{T: t, runtime: plegtest.New()}
		f.startPipeline()
		f.startServer()
		f.client = f.newClient(nil)
		time.Sleep(500 * time.Millisecond)
		test(t, f)
	})
}

// newClient returns a client with a connection of its own.
func (f *fixture) newClient(disconnected func(error, time.Duration)) *client.Client {
	f.Helper()
	c, err := client.New("", client.Options{Dial: f.dial, Disconnected: disconnected})
	kit.Must(f, err)
	f.Cleanup(func() { c.Close() })
	return c
}

func (f *fixture) dial(ctx context.Context) (net.Conn, error) {
	f.mu.Lock()
	listener := f.listener
	f.mu.Unlock()
	if listener == nil {
		return nil, errDown
	}
	conn, err := listener.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	closed := make(chan struct{})
	conn = &freezable{conn, f, closed, sync.OnceFunc(func() { close(closed) })}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns = append(f.conns, conn)
	return conn, nil
}

// change changes a pod and waits for the next list.
func (f *fixture) change(uid pleg.PodUID, words string) {
	f.runtime.Set(uid, words)
	kit.Relist(1)
}

func (f *fixture) breakConnections() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, conn := range f.conns {
		conn.Close()
	}
	f.conns = nil
}

func (f *fixture) startPipeline() {
	f.Helper()
	f.pipe = kit.New(f.T, pipeline.Options{Runtime: f.runtime.Basic()})
	f.pipe.Start(f.T)
}

func (f *fixture) startServer() {
	f.Helper()
	s, err := server.New(f.pipe.Pipeline, server.Options{})
	kit.Must(f, err)
	listener := bufconn.Listen(64 << 10)
	f.setListener(listener)
	f.stopServer = kit.Run(f.T, func(ctx context.Context) error { return s.Serve(ctx, listener) })
}

func (f *fixture) endServer() {
	f.setListener(nil)
	_ = f.stopServer() // Run reports the error
}

func (f *fixture) setListener(l *bufconn.Listener) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener = l
}

// watch contains the events of a watch.
type watch struct {
	*kit.Subscriber

	mu           sync.Mutex
	disconnected []error
}

func (f *fixture) watch() *watch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watch{}
	w.Subscriber = kit.NewSubscriber(nil, func() {
		cancel()
		<-w.Done
	})
	c := f.newClient(func(err error, _ time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.disconnected = append(w.disconnected, err)
	})
	go func() {
		defer close(w.Done)
		for ev, err := range c.Watch(ctx, pleg.SubscribeOptions{}) {
			if err != nil {
				f.Error(err)
			}
			w.Add(ev)
		}
	}()
	f.Cleanup(w.Close)
	synctest.Wait()
	return w
}

// freeze makes the daemon stop answering, as SIGSTOP does, until thaw: connections stay, and new
// ones are accepted.
func (f *fixture) freeze() (thaw func()) {
	frozen := make(chan struct{})
	f.frozen.Store(&frozen)
	return func() { close(frozen) }
}

// freezable is a connection whose answers wait while the daemon is frozen.
type freezable struct {
	net.Conn
	f      *fixture
	closed chan struct{}
	close  func()
}

func (c *freezable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if frozen := c.f.frozen.Load(); frozen != nil {
		select {
		case <-*frozen:
		case <-c.closed:
		}
	}
	return n, err
}

func (c *freezable) Close() error {
	c.close()
	return c.Conn.Close()
}
