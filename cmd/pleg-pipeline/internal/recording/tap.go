package recording

import (
	"context"
	"path"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	codec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// DialOptions returns the options of a gRPC connection to be tapped. The client
// sees no difference.
func (r *Recorder) DialOptions() []grpc.DialOption {
	unary := func(
		ctx context.Context, name string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return invoke(ctx, name, request, reply, conn, r.tap(name, request, opts)...)
	}
	stream := func(
		ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, name string, open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(ctx, desc, conn, name, r.tap(name, nil, opts)...)
	}
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)}
}

// tap returns the options of a call that is recorded.
func (r *Recorder) tap(name string, request any, opts []grpc.CallOption) []grpc.CallOption {
	method := path.Base(name)
	_, recorded := methods[method]
	if !recorded {
		return opts
	}
	var add func([]byte)
	var finish func(error)
	if method == callEvents {
		add, finish = r.tapEvents()
	} else {
		asked, _ := request.(proto.Message)
		a := r.startCall(method, asked)
		add = func(message []byte) { r.addMessage(a, message) }
		finish = func(err error) { r.finishCall(a, err) }
	}
	tapped := tappedCodec{encoding.GetCodecV2(codec.Name), add}
	for _, o := range opts {
		if forced, ok := o.(grpc.ForceCodecV2CallOption); ok {
			tapped.CodecV2 = forced.CodecV2
		}
	}
	return append(slices.Clip(opts), grpc.ForceCodecV2(tapped), grpc.OnFinish(finish))
}

func (r *Recorder) tapEvents() (add func([]byte), finish func(error)) {
	r.mu.Lock()
	r.streams++
	number := r.streams
	r.mu.Unlock()
	r.recordEvent(answer{stream: number})
	return func(message []byte) { r.recordEvent(answer{stream: number, messages: [][]byte{message}}) },
		func(err error) {
			if status.Code(err) != codes.Canceled {
				r.recordEvent(answer{stream: number, ended: true, err: err})
			}
		}
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
