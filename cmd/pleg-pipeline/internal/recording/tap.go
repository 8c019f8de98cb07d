package recording

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	codec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// pendingAfter is the age at which a call without an answer is part of the recording.
const pendingAfter = time.Second

// Tap collects the calls of a gRPC client, which never waits for it. It is safe for concurrent
// use.
type Tap struct {
	began  time.Time
	queue  chan *call  // closed by Stop
	behind atomic.Bool // a call did not fit into the queue

	mu       sync.Mutex
	inFlight map[*call]struct{}
	stopped  bool
	length   time.Duration // set by Stop
}

func newTap(queue int) *Tap {
	return &Tap{began: time.Now(), queue: make(chan *call, queue), inFlight: make(map[*call]struct{})}
}

// now returns the time since the beginning.
func (t *Tap) now() time.Duration { return time.Since(t.began) }

// DialOptions returns the options of a gRPC connection to be tapped. The client
// sees no difference.
func (t *Tap) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(t.call)}
}

func (t *Tap) call(
	ctx context.Context, name string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	method := path.Base(name)
	if _, recorded := methods[method]; !recorded {
		return invoke(ctx, name, request, reply, conn, opts...)
	}
	c := t.start(method, request)
	tapped := tappedCodec{encoding.GetCodecV2(codec.Name), c}
	for _, o := range opts {
		if forced, ok := o.(grpc.ForceCodecV2CallOption); ok {
			tapped.CodecV2 = forced.CodecV2
		}
	}
	err := invoke(ctx, name, request, reply, conn, append(slices.Clip(opts), grpc.ForceCodecV2(tapped))...)
	t.finish(c, err)
	return err
}

// tappedCodec keeps the answer of a call.
type tappedCodec struct {
	encoding.CodecV2
	of *call
}

// Name is empty so that the content type is the same as in all other calls.
func (tappedCodec) Name() string { return "" }

// Unmarshal copies data. If it returns an error, the call fails.
func (c tappedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	c.of.raw = data.Materialize()
	return c.CodecV2.Unmarshal(data, v)
}

// start returns a call, to be filled in.
func (t *Tap) start(method string, request any) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &call{at: t.now(), method: method}
	c.request, _ = request.(proto.Message)
	t.inFlight[c] = struct{}{}
	return c
}

// finish records the end of a call. It leaves out a call that the client cancelled soon, as that
// says nothing about the runtime.
func (t *Tap) finish(c *call, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.inFlight, c)
	c.pending = status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled)
	took := t.now() - c.at
	if c.pending && took < pendingAfter {
		return
	}
	if !c.pending {
		c.took, c.err = took, err
	}
	t.enqueue(c)
}

// Stop ends the recording: later answers are not in it. It does not block, and may be called
// more than once.
func (t *Tap) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		return
	}
	for _, c := range t.unanswered() {
		t.enqueue(c)
	}
	t.stopped, t.length = true, t.now()
	close(t.queue)
}

// unanswered returns the calls in flight that have waited for a second, and all calls for a status:
// a replay must not answer these with an older status. The caller holds the lock.
func (t *Tap) unanswered() (pending []*call) {
	for c := range t.inFlight {
		if _, isList := kinds[c.method]; !isList || t.now()-c.at >= pendingAfter {
			pending = append(pending, &call{method: c.method, request: c.request, at: c.at, pending: true})
		}
	}
	return pending
}

// enqueue needs the lock.
func (t *Tap) enqueue(c *call) {
	if t.stopped {
		return
	}
	select {
	case t.queue <- c:
	default:
		t.behind.Store(true)
	}
}
