package recording

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// DialOptions returns the options of a gRPC connection to be tapped. The client
// sees no difference.
func (r *Recorder) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.unary), grpc.WithChainStreamInterceptor(r.stream)}
}

func (r *Recorder) unary(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	call := path.Base(method)
	if _, recorded := methods[call]; !recorded {
		return invoke(ctx, method, request, reply, conn, opts...)
	}
	a := r.startCall(call, request)
	err := invoke(ctx, method, request, reply, conn, withTap(opts, a.add)...)
	r.finishCall(a, err)
	return err
}

func (a *answer) add(message []byte) { a.messages = append(a.messages, message) }

func (r *Recorder) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	call := path.Base(method)
	var tapped tappedStream
	var add func([]byte)
	switch _, recorded := methods[call]; {
	case !recorded:
		return open(ctx, desc, conn, method, opts...)
	case call == callEvents:
		add = r.tapEvents(&tapped)
	default:
		add = r.tapList(ctx, call, &tapped)
	}
	var err error
	if tapped.ClientStream, err = open(ctx, desc, conn, method, withTap(opts, add)...); err != nil {
		tapped.ended(err)
		return nil, err
	}
	return &tapped, nil
}

func (r *Recorder) tapEvents(s *tappedStream) (add func([]byte)) {
	r.mu.Lock()
	r.streams++
	number := r.streams
	r.mu.Unlock()
	r.event(answer{stream: number})
	s.sent = func(any) {}
	s.ended = func(err error) {
		if status.Code(err) != codes.Canceled {
			r.event(answer{stream: number, ended: true, err: err})
		}
	}
	return func(message []byte) { r.event(answer{stream: number, messages: [][]byte{message}}) }
}

func (r *Recorder) tapList(ctx context.Context, call string, s *tappedStream) (add func([]byte)) {
	a := r.startCall(call, nil)
	// A stream that the client does not read to its end is ended by its context.
	stop := context.AfterFunc(ctx, func() { r.removeCall(a) })
	s.sent = func(request any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		a.request = request
	}
	s.ended = func(err error) { stop(); r.finishCall(a, err) }
	return a.add
}

// tappedStream reports the request, and the end of the stream: nil for the
// regular one.
type tappedStream struct {
	grpc.ClientStream
	sent  func(request any)
	ended func(error)
}

// SendMsg sends the request.
func (s *tappedStream) SendMsg(m any) error {
	s.sent(m)
	return s.ClientStream.SendMsg(m)
}

// RecvMsg receives the next message, whose bytes the codec sees.
func (s *tappedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if errors.Is(err, io.EOF) {
		s.ended(nil)
	} else if err != nil {
		s.ended(err)
	}
	return err
}

// withTap wraps the codec of the call, so that add gets the bytes of each answer.
func withTap(opts []grpc.CallOption, add func([]byte)) []grpc.CallOption {
	codec := tappedCodec{encoding.GetCodecV2(proto.Name), add}
	for _, o := range opts {
		if forced, ok := o.(grpc.ForceCodecV2CallOption); ok {
			codec.CodecV2 = forced.CodecV2
		}
	}
	return append(slices.Clip(opts), grpc.ForceCodecV2(codec))
}

type tappedCodec struct {
	encoding.CodecV2
	add func([]byte)
}

// Name is empty so that the content type is that of all other calls.
func (tappedCodec) Name() string { return "" }

// Unmarshal adds a copy of data unless it is malformed, which fails the call.
func (c tappedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil {
		c.add(data.Materialize())
	}
	return err
}
