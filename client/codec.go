package client

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxElements is the greatest number of containers, labels and other messages in one message. Each
// takes some 300 bytes here and as little as two in the message, so a message of 16 MiB could take
// gigabytes.
const maxElements = 100_000

// codec decodes the messages of a server that may be broken.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Name is empty so that the calls have the content type of all others.
func (codec) Name() string { return "" }

// Unmarshal decodes a message unless it has too many elements.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(protobuf.Message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	raw := buffer.ReadOnlyData()
	if countElements(raw, m.ProtoReflect().Descriptor(), maxElements) < 0 {
		return fmt.Errorf("the message has more than %d elements", maxElements)
	}
	return protobuf.Unmarshal(raw, m)
}

// countElements subtracts the elements of an encoded message from left. Beyond 0 it stops
// counting. What cannot be split into fields is not counted: it cannot be decoded either.
func countElements(raw []byte, message protoreflect.MessageDescriptor, left int) int {
	for len(raw) > 0 && left >= 0 {
		num, typ, n := protowire.ConsumeField(raw)
		if n < 0 {
			return left
		}
		field := message.Fields().ByNumber(num)
		if typ == protowire.BytesType && field != nil && (field.Message() != nil || field.IsList()) {
			left--
			if field.Message() != nil {
				_, _, tag := protowire.ConsumeTag(raw)
				content, _ := protowire.ConsumeBytes(raw[tag:n])
				left = countElements(content, field.Message(), left)
			}
		}
		raw = raw[n:]
	}
	return left
}
