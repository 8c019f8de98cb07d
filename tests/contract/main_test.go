package pipeline_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pleg-pipeline/pleg-pipeline"
	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodetest"
	"github.com/pleg-pipeline/pleg-pipeline/internal/wire"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/server"
)

// The contract of a subscription is tested clause by clause, and each clause
// with subscribers in the process and at the other end of the gRPC service.

// contractBed is a pipeline of a node, and a way to subscribe to it.
type contractBed struct {
	*testing.T
	node     *nodetest.Node
	registry *prometheus.Registry
	pipe     *pipeline.Pipeline
	// subscribeSeeing has a function called with each event, by the reader.
	subscribeSeeing func(pipeline.SubscribeOptions, func(pleg.Event)) *view
	steps           int // that the pods have taken
}

// eachWay runs a test in a bubble for each way to subscribe. The pipeline of
// the bed runs; it relists every second.
func eachWay(t *testing.T, o pipeline.Options, test func(*contractBed)) {
	ways := []struct {
		name string
		open func(*contractBed) func(pipeline.SubscribeOptions, func(pleg.Event)) *view
	}{
		{"in process", func(b *contractBed) func(pipeline.SubscribeOptions, func(pleg.Event)) *view { return b.inProcess }},
		{"over the socket", (*contractBed).overSocket},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newContractBed(t, o)
				b.subscribeSeeing = way.open(b)
				test(b)
			})
		})
	}
}

func newContractBed(t *testing.T, o pipeline.Options) *contractBed {
	t.Helper()
	b := &contractBed{T: t, node: nodetest.New(), registry: prometheus.NewPedanticRegistry()}
	o.Runtime, o.Registerer = b.node, b.registry
	var err error
	if b.pipe, err = pipeline.New(o); err != nil {
		t.Fatal(err)
	}
	b.run(b.pipe.Run)
	time.Sleep(500 * time.Millisecond) // to be between two lists whenever the test acts
	return b
}

func (b *contractBed) subscribe(o pipeline.SubscribeOptions) *view {
	b.Helper()
	return b.subscribeSeeing(o, nil)
}

// run runs something that ends with its context until the test ends.
func (b *contractBed) run(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			b.Errorf("it ended with %v, want %v", err, context.Canceled)
		}
	})
}

// relist lets everything up to the end of n lists happen.
func (b *contractBed) relist(n int) {
	time.Sleep(time.Duration(n) * time.Second)
	synctest.Wait()
}

// view is what one subscriber got.
type view struct {
	// turn is held by who may go on: the reader, unless it is paused.
	turn chan struct{}
	see  func(pleg.Event) // nil for nobody
	end  func()
	over chan struct{} // closed once nothing more comes

	mu  sync.Mutex
	got []pleg.Event
}

func newView(see func(pleg.Event), end func()) *view {
	v := &view{turn: make(chan struct{}, 1), see: see, end: end, over: make(chan struct{})}
	v.turn <- struct{}{}
	return v
}

// pause stops the reader, which may have one event in its hand.
func (v *view) pause() { <-v.turn }

// proceed lets it read again, and that be noticed.
func (v *view) proceed() {
	v.turn <- struct{}{}
	time.Sleep(20 * time.Millisecond)
}

func (v *view) take(ev pleg.Event) {
	<-v.turn
	v.mu.Lock()
	v.got = append(v.got, ev)
	v.mu.Unlock()
	v.turn <- struct{}{}
	if v.see != nil {
		v.see(ev)
	}
}

// events returns all that came so far.
func (v *view) events() []pleg.Event {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.got)
}

func (b *contractBed) inProcess(o pipeline.SubscribeOptions, see func(pleg.Event)) *view {
	b.Helper()
	sub, err := b.pipe.Subscribe(o)
	if err != nil {
		b.Fatal(err)
	}
	v := newView(see, sub.Close)
	go func() {
		defer close(v.over)
		for ev := range sub.Events() {
			v.take(ev)
		}
	}()
	return v
}

// overSocket returns how to subscribe through a server of the pipeline.
func (b *contractBed) overSocket() func(pipeline.SubscribeOptions, func(pleg.Event)) *view {
	srv, err := server.New(b.pipe, server.Options{})
	if err != nil {
		b.Fatal(err)
	}
	listener := bufconn.Listen(64 << 10)
	b.run(func(ctx context.Context) error { return srv.Serve(ctx, listener) })
	conn, err := grpc.NewClient("passthrough:///localhost",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	client := plegv1.NewPLEGClient(conn)
	return func(o pipeline.SubscribeOptions, see func(pleg.Event)) *view { return b.watch(client, o, see) }
}

func (b *contractBed) watch(client plegv1.PLEGClient, o pipeline.SubscribeOptions, see func(pleg.Event)) *view {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := client.Watch(ctx, watchRequest(b.T, o))
	if err != nil {
		b.Fatal(err)
	}
	if _, err := stream.Header(); err != nil { // it comes once the subscription stands
		b.Fatal(err)
	}
	v := newView(see, cancel)
	go func() {
		defer close(v.over)
		defer cancel()
		for {
			m, err := stream.Recv()
			if err != nil {
				if code := status.Code(err); code != codes.Canceled && code != codes.Unavailable {
					b.Errorf("the stream ended with %v", err)
				}
				return
			}
			v.take(wire.ToEvent(m.GetEvent()))
		}
	}()
	return v
}

func watchRequest(t *testing.T, o pipeline.SubscribeOptions) *plegv1.WatchRequest {
	t.Helper()
	r := &plegv1.WatchRequest{
		Name: o.Name, Buffer: uint32(o.Buffer), Replay: o.Replay, Bookmarks: o.Bookmarks,
		Namespaces: o.Namespaces, LabelSelector: o.Selector,
		OmitSandboxes: o.OmitSandboxes, NetworkEvents: o.NetworkEvents,
	}
	if o.After != (pipeline.Position{}) {
		r.ResumeAfter = &plegv1.Position{Epoch: o.After.Epoch, Seq: o.After.Seq}
	}
	for _, typ := range o.Types {
		number, ok := wire.FromEventType(typ)
		if !ok {
			t.Fatalf("no number of event type %q", typ)
		}
		r.Types = append(r.Types, number)
	}
	for _, uid := range o.PodUIDs {
		r.PodUids = append(r.PodUids, string(uid))
	}
	return r
}

// synctestInProcess is for what can only be tested without a transport between.
func synctestInProcess(t *testing.T, test func(*contractBed)) {
	synctest.Test(t, func(t *testing.T) { test(newContractBed(t, pipeline.Options{})) })
}
