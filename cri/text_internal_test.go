package cri

import (
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
)

// anyText returns the messages of CRI with bytes in place of strings. Both are encoded alike.
var anyText = sync.OnceValue(func() protoreflect.MessageDescriptors {
	file := protodesc.ToFileDescriptorProto(runtimeapi.File_staging_src_k8s_io_cri_api_pkg_apis_runtime_v1_api_proto)
	stringsToBytes(file.GetMessageType())
	descriptor, err := protodesc.NewFile(file, nil)
	if err != nil {
		panic(err)
	}
	return descriptor.Messages()
})

func stringsToBytes(messages []*descriptorpb.DescriptorProto) {
	for _, m := range messages {
		m.Options = nil // a map is a list of entries
		for _, field := range m.GetField() {
			if field.GetType() == descriptorpb.FieldDescriptorProto_TYPE_STRING {
				field.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
			}
		}
		stringsToBytes(m.GetNestedType())
	}
}

// decodes reports whether raw is a message of this kind, with text of any bytes.
func decodes(raw []byte, kind protoreflect.ProtoMessage) bool {
	message := dynamicpb.NewMessage(anyText().ByName(kind.ProtoReflect().Descriptor().Name()))
	return proto.Unmarshal(raw, message) == nil
}

// withoutBadText returns a list without the items with text that is not UTF-8, and their
// number.
func withoutBadText(answer []byte, kind protoreflect.ProtoMessage) (rest []byte, bad int) {
	for left := answer; len(left) > 0; {
		num, typ, n := protowire.ConsumeField(left)
		if n < 0 {
			return answer, 0
		}
		field := left[:n]
		left = left[n:]
		if num == itemsField && typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(field)
			item, _ := protowire.ConsumeBytes(field[tag:])
			if proto.Unmarshal(item, proto.Clone(kind)) != nil && decodes(item, kind) {
				bad++
				continue
			}
		}
		rest = append(rest, field...)
	}
	return rest, bad
}

// FuzzText requires that a message is refused only if it is malformed apart from its text.
func FuzzText(f *testing.F) {
	f.Add([]byte(strings.ReplaceAll(string(encode(f, aContainerStarts())), "shop", "sh\xffp")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, message := range []proto.Message{
			&runtimeapi.PodSandbox{}, &runtimeapi.Container{}, &runtimeapi.ContainerEventResponse{},
		} {
			text := proto.Unmarshal(raw, proto.Clone(message)) == nil
			replaced, err := lenient.Unmarshal(raw, message)
			if want := decodes(raw, message); (err == nil) != want || replaced != (want && !text) {
				t.Errorf("%T: replaced %v, %v; decodes without text %v, with text %v", message, replaced, err, want, text)
			}
			if _, err := proto.Marshal(message); err != nil {
				t.Errorf("%T: %v", message, err)
			}
		}
	})
}
