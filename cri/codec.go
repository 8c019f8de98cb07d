package cri

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// listCodec decodes an answer into a [table], which decodes only what has changed.
// It encodes requests as usual.
type listCodec struct{ encoding.CodecV2 }

func newListCodec() listCodec { return listCodec{encoding.GetCodecV2(proto.Name)} }

// Name is empty so that the calls have the content type of all others.
func (listCodec) Name() string { return "" }

// Unmarshal reads data into a *table or a batch. It does not keep data.
func (listCodec) Unmarshal(data mem.BufferSlice, v any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	return v.(interface{ read([]byte) error }).read(buffer.ReadOnlyData())
}
