package recording

import (
	"context"
	"errors"
	"io"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// DialOptions returns the options of a gRPC connection that is to be tapped.
// The client sees no difference.
func (r *Recorder) DialOptions() []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.unary), grpc.WithChainStreamInterceptor(r.stream)}
}

func (r *Recorder) unary(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	c := r.begin(method, request)
	if c == nil {
		return invoke(ctx, method, request, reply, conn, opts...)
	}
	err := invoke(ctx, method, request, reply, conn, tapped(opts, c.keep)...)
	r.end(c, err)
	return err
}

func (c *call) keep(message []byte) { c.messages = append(c.messages, message) }

func (r *Recorder) stream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	if method == eventsMethod {
		return r.eventStream(ctx, desc, conn, method, open, opts)
	}
	c := r.begin(method, nil)
	if c == nil {
		return open(ctx, desc, conn, method, opts...)
	}
	stream, err := open(ctx, desc, conn, method, tapped(opts, c.keep)...)
	if err != nil {
		r.end(c, err)
		return nil, err
	}
	// A stream that is not read to its end is ended by its context.
	forget := context.AfterFunc(ctx, func() { r.forget(c) })
	return &tappedStream{stream, func(request any) { r.asks(c, request) }, func(err error) { forget(); r.end(c, err) }}, nil
}

func (r *Recorder) eventStream(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts []grpc.CallOption,
) (grpc.ClientStream, error) {
	r.mu.Lock()
	r.streams++
	number := r.streams
	r.mu.Unlock()
	ended := func(err error) {
		if status.Code(err) != codes.Canceled {
			r.event(answer{stream: number, ended: true, err: err})
		}
	}
	r.event(answer{stream: number})
	stream, err := open(ctx, desc, conn, method, tapped(opts, func(message []byte) {
		r.event(answer{stream: number, messages: [][]byte{message}})
	})...)
	if err != nil {
		ended(err)
		return nil, err
	}
	return &tappedStream{stream, func(any) {}, ended}, nil
}

// tappedStream tells what is asked, and how it ended, nil for its regular end.
type tappedStream struct {
	grpc.ClientStream
	asks  func(request any)
	ended func(error)
}

// SendMsg sends the request.
func (s *tappedStream) SendMsg(m any) error {
	s.asks(m)
	return s.ClientStream.SendMsg(m)
}

// RecvMsg receives the next message; its bytes are seen by the codec.
func (s *tappedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	switch {
	case errors.Is(err, io.EOF):
		s.ended(nil)
	case err != nil:
		s.ended(err)
	}
	return err
}

// tapped adds the codec that sees each answer's bytes before the one that would
// be used otherwise.
func tapped(opts []grpc.CallOption, see func([]byte)) []grpc.CallOption {
	codec := tappedCodec{encoding.GetCodecV2(proto.Name), see}
	for _, o := range opts {
		if forced, ok := o.(grpc.ForceCodecV2CallOption); ok {
			codec.CodecV2 = forced.CodecV2
		}
	}
	return append(slices.Clip(opts), grpc.ForceCodecV2(codec))
}

type tappedCodec struct {
	encoding.CodecV2
	see func([]byte)
}

// Name is empty so that the content type stays that of all other calls.
func (tappedCodec) Name() string { return "" }

// Unmarshal shows a copy of data, which is not to be kept, unless it is malformed:
// then the call fails.
func (c tappedCodec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if err == nil {
		c.see(data.Materialize())
	}
	return err
}
