package cri_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/rawruntime"
)

// watch follows the events of a client until the test ends.
type watch struct {
	hints  chan pleg.Hint
	opened chan struct{}
	ended  chan error
}

func watchEvents(t *testing.T, client *cri.Client) *watch {
	t.Helper()
	w := &watch{hints: make(chan pleg.Hint, 1000), opened: make(chan struct{}), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.ended <- client.WatchEvents(ctx, func() { close(w.opened) }, func(h pleg.Hint) { w.hints <- h })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return w
}

// The events of a runtime that ends the stream at once are switched off. A runtime that ends the
// stream later, or after an event, supports events: also if it restarts twice within a second and ends
// new streams at once.
func TestEventsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		lives  []time.Duration // of one stream after another
		events int
		err    error // of the runtime
		none   bool
		code   codes.Code
		words  string
	}{
		"not implemented":   {[]time.Duration{0}, 0, status.Error(codes.Unimplemented, "unknown"), true, codes.Unimplemented, "rpc error: code = Unimplemented desc = unknown"},
		"broken":            {[]time.Duration{0}, 3, status.Error(codes.Unavailable, "broken"), false, codes.Unavailable, "rpc error: code = Unavailable desc = broken"},
		"at once":           {[]time.Duration{0}, 0, nil, true, codes.Unknown, "the runtime ended the stream"},
		"after an event":    {[]time.Duration{0}, 1, nil, false, codes.Unknown, "the runtime ended the stream"},
		"after two seconds": {[]time.Duration{2 * time.Second, 0, 0}, 0, nil, false, codes.Unknown, "the runtime ended the stream"},
	} {
		kit.Bubble(t, name, func(t *testing.T) {
			fake := &rawruntime.Runtime{End: tt.err}
			client := connect(t, fake, cri.Options{})
			for _, lives := range tt.lives {
				fake.Events = largeEvents(tt.events)
				time.AfterFunc(lives, func() { close(fake.Events) })
				err := <-watchEvents(t, client).ended
				words := tt.words
				if tt.none {
					words = pleg.ErrNoEvents.Error() + ": " + words
				}
				if err == nil || errors.Is(err, pleg.ErrNoEvents) != tt.none || errors.Is(err, io.EOF) ||
					status.Code(err) != tt.code || err.Error() != "watch container events: "+words {
					t.Errorf("a stream that lived for %v ended with %v, want the code %v, no events: %t", lives, err, tt.code, tt.none)
				}
			}
		})
	}
}

// A runtime without events is asked once for each connection: it may be upgraded, or downgraded.
func TestEventsAreAskedForOncePerConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		count := func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			asked.Add(1)
			return handler(srv, stream)
		}
		m := &kit.Memory{}
		without := func() *rawruntime.Runtime {
			fake := &rawruntime.Runtime{End: status.Error(codes.Unimplemented, "no events"), Events: make(chan *runtimeapi.ContainerEventResponse)}
			close(fake.Events)
			return fake
		}
		stop := rawruntime.Serve(t, without(), m.Listen(), grpc.StreamInterceptor(count))
		client := clientOf(t, m, cri.Options{})
		connected := func() {
			for _, err := client.ListPods(t.Context()); err != nil; _, err = client.ListPods(t.Context()) {
				time.Sleep(100 * time.Millisecond)
			}
		}
		requireNone := func(calls int32) {
			t.Helper()
			for range 5 {
				if err := <-watchEvents(t, client).ended; !errors.Is(err, pleg.ErrNoEvents) || status.Code(err) != codes.Unimplemented {
					t.Errorf("the stream ended with %v, want no events", err)
				}
			}
			if n := asked.Swap(0); n != calls {
				t.Errorf("asked %d times, want %d", n, calls)
			}
		}
		replace := func(by *rawruntime.Runtime) {
			stop()
			synctest.Wait() // until both connections have ended: a call on the old one fails
			stop = rawruntime.Serve(t, by, m.Listen(), grpc.StreamInterceptor(count))
			connected()
		}
		connected()
		requireNone(1)
		replace(&rawruntime.Runtime{Events: largeEvents(1)})
		w := watchEvents(t, client)
		<-w.hints
		replace(without())
		if err := <-w.ended; errors.Is(err, pleg.ErrNoEvents) {
			t.Errorf("the stream of the runtime before ended with %v", err)
		}
		asked.Store(0)
		requireNone(1)
	})
}

func largeEvents(n int) chan *runtimeapi.ContainerEventResponse {
	events := make(chan *runtimeapi.ContainerEventResponse, n)
	for range n {
		events <- &runtimeapi.ContainerEventResponse{ContainerId: strings.Repeat("x", 2<<10)}
	}
	return events
}

// TestSlowReaderDoesNotBlockRuntime sends far more than grpc's default window holds to
// a client that does not return from a hint.
func TestSlowReaderDoesNotBlockRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := &rawruntime.Runtime{Events: largeEvents(4000)}
		w := watchEvents(t, connect(t, fake, cri.Options{}))
		synctest.Wait()
		if len(w.hints) != cap(w.hints) || len(fake.Events) > 0 {
			t.Errorf("%d hints arrived and %d events wait for the reader: 6 MB do not fit into the window", len(w.hints), len(fake.Events))
		}
		for range 4000 {
			<-w.hints
		}
	})
}

// A stream ends with its context, however many events have come: a flood must not keep the daemon
// from ending.
func TestFloodEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, &rawruntime.Runtime{Events: largeEvents(4000)}, cri.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		hints, opened := 0, false
		err := client.WatchEvents(ctx, func() { time.Sleep(time.Second); opened = true }, func(pleg.Hint) {
			if hints++; !opened {
				t.Error("a hint while the stream is being reported as opened")
			}
			time.Sleep(time.Second) // the whole burst comes
			cancel()
		})
		if hints != 1 || status.Code(err) != codes.Canceled {
			t.Errorf("%d hints after the end of the context, %v", hints-1, err)
		}
	})
}

// A stream ends with WatchEvents, also if that panics, and also if it never counted as opened.
func TestStreamEndsWithItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int32
		fake := &rawruntime.Runtime{Events: largeEvents(1)}
		m := &kit.Memory{}
		rawruntime.Serve(t, fake, m.Listen(), grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			defer open.Add(-1)
			open.Add(1)
			return handler(srv, stream)
		}))
		client := clientOf(t, m, cri.Options{})
		for range 2 {
			func() {
				defer func() { _ = recover() }()
				err := client.WatchEvents(t.Context(), func() {}, func(pleg.Hint) { panic("test") })
				if fake.Before == nil || status.Code(err) != codes.Internal {
					t.Errorf("WatchEvents = %v", err)
				}
			}()
			synctest.Wait()
			if n := open.Load(); n != 0 {
				t.Errorf("%d streams are left", n)
			}
			fake.Before = func(context.Context, any) error { return status.Error(codes.Internal, "no version") }
		}
	})
}

// raw is a stream of an interceptor that receives each event as another message, as a recorder may.
type raw struct{ grpc.ClientStream }

func (s raw) RecvMsg(m any) error {
	var fields emptypb.Empty // keeps those that it does not know
	if err := s.ClientStream.RecvMsg(&fields); err != nil {
		return err
	}
	return proto.Unmarshal(fields.ProtoReflect().GetUnknown(), m.(proto.Message))
}

// Interceptors change nothing in events. If one opens no stream, its error ends the watch.
func TestEventThroughAnInterceptor(t *testing.T) {
	var fails error
	intercept := func(ctx context.Context, of *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
		if fails != nil {
			return nil, fails
		}
		stream, err := open(ctx, of, conn, method, o...)
		return raw{stream}, err
	}
	fake := &rawruntime.Runtime{Events: make(chan *runtimeapi.ContainerEventResponse, 1)}
	fake.Events <- &runtimeapi.ContainerEventResponse{ContainerId: "c1"}
	client := connect(t, fake, cri.Options{DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(intercept)}})
	if h := <-watchEvents(t, client).hints; h.Container != "c1" {
		t.Errorf("the hint is %+v, want one of c1", h)
	}
	fails = status.Error(codes.Internal, "refused")
	if err := <-watchEvents(t, client).ended; err == nil || err.Error() != "watch container events: "+fails.Error() {
		t.Errorf("the watch ended with %v, want %v", err, fails)
	}
}

// The encoded fields that each of these messages gets in addition: the id, and the name in
// the metadata. Go's encoder refuses text that is not UTF-8.
var (
	badID   = []byte{0x0a, 0x02, 'c', 0xff}
	badName = []byte{0x0a, 0x02, 'n', 0xff}
)

// withField adds an encoded field to a message.
func withField[M proto.Message](m M, field []byte) M {
	m.ProtoReflect().SetUnknown(field)
	return m
}

func badSandbox(s *runtimeapi.PodSandbox) *runtimeapi.PodSandbox {
	withField(s.Metadata, badName)
	return s
}

func badContainer(c *runtimeapi.Container) *runtimeapi.Container {
	withField(c.Metadata, badName)
	return c
}

// An event with such text does not end the stream. It is a reason to list the pod.
func TestEventThatIsNotUTF8(t *testing.T) {
	fake := &rawruntime.Runtime{Events: make(chan *runtimeapi.ContainerEventResponse)}
	registry := prometheus.NewPedanticRegistry()
	w := watchEvents(t, connect(t, fake, cri.Options{Registerer: registry}))
	event := func() *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{
			ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: 5,
			PodSandboxStatus:   &runtimeapi.PodSandboxStatus{Id: "s", Metadata: &runtimeapi.PodSandboxMetadata{Name: "n", Namespace: "ns", Uid: "u"}},
			ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: "c", Metadata: &runtimeapi.ContainerMetadata{Name: "n"}, State: 1}},
		}
	}
	sandbox, container, head := event(), event(), event()
	withField(sandbox.PodSandboxStatus.Metadata, badName)
	withField(container.ContainersStatuses[0].Metadata, badName)
	withField(head, badID)
	for _, bad := range []*runtimeapi.ContainerEventResponse{sandbox, container, head} {
		for _, e := range []*runtimeapi.ContainerEventResponse{bad, event()} {
			fake.Events <- e
			h := <-w.hints
			if h.UID != "u" || h.State != pleg.StateRunning || (h.Container == "") != (e == bad) {
				t.Errorf("got %+v of %v", h, e)
			}
		}
	}
	kit.RequireMetric(t, registry, 3, "pleg_malformed_items_total")
	fake.Events <- withField(event(), []byte{0x0a, 0x05, 'c'}) // its text has less than 5 bytes
	if err := <-w.ended; status.Code(err) != codes.Internal || !strings.HasPrefix(err.Error(), "watch container events: ") {
		t.Errorf("after an event that cannot be decoded the stream ended with %v", err)
	}
}

// Events from before the first stream are not new: their hints name no container. Events without a time
// are, and a clock that is set back later changes nothing.
func TestEventsFromBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		time.Sleep(time.Second)
		fake := &rawruntime.Runtime{Events: make(chan *runtimeapi.ContainerEventResponse)}
		w := watchEvents(t, connect(t, fake, cri.Options{}))
		<-w.opened
		nameOf := func(at time.Time) string {
			fake.Events <- &runtimeapi.ContainerEventResponse{
				ContainerId: "s1", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: at.UnixNano(),
				PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1"}},
			}
			h := <-w.hints
			if h.Container != "s1" || h.Sandbox != "s1" || h.UID != "u1" || h.State != pleg.StateRunning {
				t.Errorf("the hint is %+v", h)
			}
			return h.Name
		}
		if old, now, timeless := nameOf(before), nameOf(time.Now()), nameOf(time.Unix(0, 0)); old != "" || now != "web" || timeless != "web" {
			t.Errorf("the hints name %q of before, %q of now and %q without a time, want all but the first", old, now, timeless)
		}
		time.Sleep(59 * time.Second)
		if name := nameOf(before); name != "" {
			t.Errorf("within a minute a hint names %q of before", name)
		}
		time.Sleep(time.Second)
		if name := nameOf(before); name != "web" {
			t.Errorf("a minute later a hint names %q, want web", name)
		}
	})
}

// Only events from before the first stream are old: the next stream may report changes that happened
// while a stream was broken.
func TestEventsBetweenStreamsAreNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		time.Sleep(time.Second)
		fake := &rawruntime.Runtime{Events: make(chan *runtimeapi.ContainerEventResponse)}
		client := connect(t, fake, cri.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel) // a server would end at a deadline, too
		if err := client.WatchEvents(ctx, func() {}, nil); status.Code(err) != codes.Canceled {
			t.Fatalf("the first stream ended with %v", err)
		}
		between := time.Now()
		time.Sleep(time.Second)
		w := watchEvents(t, client)
		<-w.opened
		for name, at := range map[string]time.Time{"": before, "web": between} {
			fake.Events <- &runtimeapi.ContainerEventResponse{
				ContainerId: "s1", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, CreatedAt: at.UnixNano(),
				PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "s1", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u1"}},
			}
			if h := <-w.hints; h.Name != name {
				t.Errorf("the hint of an event at %v names %q, want %q", at, h.Name, name)
			}
		}
	})
}
