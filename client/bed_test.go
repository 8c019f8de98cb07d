package client_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/test/bufconn"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodetest"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var errDown = errors.New("the server is down")

// bed is a node whose pipeline and server can be restarted, and a client.
type bed struct {
	*testing.T
	node   *nodetest.Node
	client *client.Client

	pipe             *pipeline.Pipeline
	endPipe, endServ func()

	mu       sync.Mutex
	listener *bufconn.Listener // nil while the server is down
	conns    []net.Conn
	dials    []time.Time
}

// newBed must be called in a bubble. The pipeline and the server run; lists are
// half a second before and after whatever the test does.
func newBed(t *testing.T, o pipeline.Options) *bed {
	t.Helper()
	b := &bed{T: t, node: nodetest.New()}
	b.startPipe(o)
	b.startServer(server.Options{})
	var err error
	b.client, err = client.New("", client.Options{Dial: b.dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.client.Close()
		b.endServ()
		b.endPipe()
	})
	time.Sleep(500 * time.Millisecond)
	return b
}

func (b *bed) dial(ctx context.Context) (net.Conn, error) {
	b.mu.Lock()
	listener := b.listener
	b.dials = append(b.dials, time.Now())
	b.mu.Unlock()
	if listener == nil {
		return nil, errDown
	}
	conn, err := listener.DialContext(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conns = append(b.conns, conn)
	return conn, err
}

// cut breaks all connections.
func (b *bed) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, conn := range b.conns {
		if conn != nil {
			conn.Close()
		}
	}
	b.conns = nil
}

func (b *bed) startPipe(o pipeline.Options) {
	b.Helper()
	o.Runtime = b.node
	var err error
	if b.pipe, err = pipeline.New(o); err != nil {
		b.Fatal(err)
	}
	b.endPipe = b.start(b.pipe.Run)
}

func (b *bed) startServer(o server.Options) {
	b.Helper()
	s, err := server.New(b.pipe, o)
	if err != nil {
		b.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	b.mu.Lock()
	b.listener = listener
	b.mu.Unlock()
	end := b.start(func(ctx context.Context) error { return s.Serve(ctx, listener) })
	b.endServ = func() {
		b.mu.Lock()
		b.listener = nil
		b.mu.Unlock()
		end()
	}
}

// start returns how to end what it has started.
func (b *bed) start(run func(context.Context) error) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			b.Errorf("it ended with %v, want %v", err, context.Canceled)
		}
	})
}

// relist lets n lists happen.
func (b *bed) relist(n int) {
	time.Sleep(time.Duration(n) * time.Second)
	synctest.Wait()
}

// watched is what a watch got.
type watched struct {
	end  func()
	over chan struct{}

	mu     sync.Mutex
	events []pleg.Event
	lost   []error
	err    error
}

func (b *bed) watch(o client.WatchOptions, see func(pleg.Event)) *watched {
	ctx, cancel := context.WithCancel(context.Background())
	w := &watched{over: make(chan struct{})}
	w.end = func() {
		cancel()
		<-w.over
	}
	o.Disconnected = func(err error, _ time.Duration) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lost = append(w.lost, err)
	}
	go func() {
		defer close(w.over)
		for ev, err := range b.client.Watch(ctx, o) {
			w.mu.Lock()
			if err != nil {
				w.err = err
			} else {
				w.events = append(w.events, ev)
			}
			w.mu.Unlock()
			if see != nil {
				see(ev)
			}
		}
	}()
	b.Cleanup(w.end)
	synctest.Wait()
	return w
}

func (w *watched) got() []pleg.Event {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}
