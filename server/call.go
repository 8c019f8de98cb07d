package server

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
)

// call is a call that is counted until gRPC has written its answer. The handler returns earlier,
// when gRPC has taken the answer: if the count ended there, a client that does not read could
// make any number of answers wait.
type call struct {
	brief   bool
	timeout time.Duration
	timer   *time.Timer // closes the connection
	// open is the number of messages that gRPC has not written, plus one until the call
	// has ended.
	open    atomic.Int64
	release context.CancelFunc // frees the place of the call
}

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// newCall returns a call whose place is freed once it has ended and is written, or its
// connection is closed.
func newCall(ctx context.Context, conn *heldConn, brief bool, timeout time.Duration, free func()) *call {
	c := &call{brief: brief, timeout: timeout, timer: time.AfterFunc(timeout, conn.closeNow)}
	c.open.Store(1)
	held, release := context.WithCancel(ctx.Value(connectedKey{}).(context.Context))
	c.release = release
	context.AfterFunc(held, func() { //nolint:contextcheck // the context of the connection
		c.timer.Stop()
		free()
	})
	context.AfterFunc(ctx, c.ended)
	return c
}

// ended starts the timer of what the client has not read yet.
func (c *call) ended() {
	if !c.brief {
		c.timer.Reset(c.timeout)
	}
	c.done()
}

func (c *call) done() {
	if c.open.Add(-1) == 0 {
		c.release()
	}
}

// requestReceived notes that the client has sent the request of a call.
func (c *call) requestReceived() {
	if !c.brief {
		c.timer.Stop()
	}
}

// interceptUnary ends a call when closing ends, and counts its answer.
func interceptUnary(closing context.Context) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		c := callOf(ctx)
		c.requestReceived()
		ending, cancel := untilClosing(ctx, closing)
		defer cancel()
		answer, err := handler(ending, request)
		if err != nil {
			return nil, unavailable(ending, err)
		}
		return countedMessage{answer, &written{call: c}}, nil
	}
}

// interceptStream has a call end when closing does, and its messages counted.
func interceptStream(closing context.Context) grpc.StreamServerInterceptor {
	return func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ending, cancel := untilClosing(stream.Context(), closing)
		defer cancel()
		return unavailable(ending, handler(server, interceptedStream{stream, ending, callOf(ending)}))
	}
}

// interceptedStream is a stream that ends with ctx and notes when the request has been
// received, and the messages that are sent.
type interceptedStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // gRPC gets the context from the stream
	call *call
}

// Context implements [grpc.ServerStream].
func (s interceptedStream) Context() context.Context { return s.ctx }

// RecvMsg implements [grpc.ServerStream].
func (s interceptedStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil {
		s.call.requestReceived()
	}
	return err
}

// SendMsg implements [grpc.ServerStream].
func (s interceptedStream) SendMsg(m any) error {
	return s.ServerStream.SendMsg(countedMessage{m, &written{call: s.call}})
}

type countedMessage struct {
	any
	written *written
}

// observer sees what gRPC does with calls and connections.
type observer struct{}

// HandleRPC implements [stats.Handler]. It sees each message once gRPC has taken it. If the
// client gives the call up just before, or its deadline passes, gRPC drops the message and does
// not free it (loopyWriter.preprocessData in v1.85).
func (observer) HandleRPC(ctx context.Context, s stats.RPCStats) {
	sent, ok := s.(*stats.OutPayload)
	if !ok || ctx.Err() == nil {
		return
	}
	if counted, ok := sent.Payload.(countedMessage); ok {
		counted.written.done()
	}
}

// TagRPC implements [stats.Handler].
func (observer) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// connectedKey has the context of a connection, disconnectedKey what ends it.
type connectedKey struct{}

type disconnectedKey struct{}

// TagConn implements [stats.Handler]. The context of a connection ends those of its calls:
// gRPC does not end that of a refused call before its deadline (operateHeaders in v1.85).
func (observer) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	connected, disconnected := context.WithCancel(ctx)
	return context.WithValue(context.WithValue(connected, connectedKey{}, connected), disconnectedKey{}, disconnected)
}

// HandleConn implements [stats.Handler].
func (observer) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); ended {
		ctx.Value(disconnectedKey{}).(context.CancelFunc)()
	}
}

// countingCodec adds a buffer without bytes to each counted message. gRPC frees the buffers
// of a message when it has written them, or when the client gives the call up. It does not
// if the connection ends, but then the call is released anyway.
type countingCodec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c countingCodec) Marshal(m any) (mem.BufferSlice, error) {
	counted, ok := m.(countedMessage)
	if !ok {
		return c.CodecV2.Marshal(m)
	}
	data, err := c.CodecV2.Marshal(counted.any)
	if err != nil {
		return nil, err
	}
	counted.written.call.open.Add(1)
	return append(data, mem.NewBuffer(&noBytes, counted.written)), nil
}

// noBytes is never written to. gRPC counts the references to a buffer only if it has at least
// this capacity.
var noBytes = make([]byte, 0, 4<<10)

// written is the pool to which gRPC returns the buffer behind a message of a call.
type written struct {
	call  *call
	noted atomic.Bool
}

// Get implements [mem.BufferPool]. Nothing calls it.
func (*written) Get(length int) *[]byte { return new(make([]byte, length)) }

// Put implements [mem.BufferPool].
func (w *written) Put(*[]byte) { w.done() }

func (w *written) done() {
	if !w.noted.Swap(true) {
		w.call.done()
	}
}
