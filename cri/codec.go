package cri

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
)

// unnamed is a codec without a name, so that its calls use the content type of all others.
type unnamed struct{ encoding.CodecV2 }

// Name implements [encoding.CodecV2].
func (unnamed) Name() string { return "" }

// protobuf is grpc's own codec.
var protobuf = unnamed{encoding.GetCodecV2(proto.Name)}

// eventCodec decodes the CRI events of a stream with the generated code, also if text in
// them is not UTF-8. Then it removes the names of the container, so that the event is only a reason
// to list the pod.
type eventCodec struct {
	unnamed
	notUTF8 func() // called for each such event
}

// Unmarshal decodes an event, or a message of an interceptor in
// Options.DialOptions.
func (c eventCodec) Unmarshal(data mem.BufferSlice, v any) error {
	event, ok := v.(*runtimeapi.ContainerEventResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	replaced, err := lenient.Unmarshal(buffer.ReadOnlyData(), event)
	if !replaced {
		return err
	}
	event.ContainerId = ""
	c.notUTF8()
	return nil
}

// listCodec decodes an answer into a [table], which decodes only what has changed.
// It encodes requests as usual.
type listCodec struct{ unnamed }

// Unmarshal adds data to a *table. It does not keep data.
func (listCodec) Unmarshal(data mem.BufferSlice, v any) error { return v.(*table).read(data) }
