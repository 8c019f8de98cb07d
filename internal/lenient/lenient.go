// Package lenient decodes messages of a runtime, also if text in them is not UTF-8.
package lenient

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Unmarshal is proto.Unmarshal, except that it replaces text that is not UTF-8 and reports it. The
// generated code refuses the whole message.
func Unmarshal(raw []byte, m proto.Message) (replaced bool, err error) {
	if err = proto.Unmarshal(raw, m); err == nil {
		return false, nil
	}
	repaired, ok := appendUTF8(make([]byte, 0, len(raw)), raw, m.ProtoReflect().Descriptor())
	if !ok || proto.Unmarshal(repaired, m) != nil {
		return false, err
	}
	return true, nil
}

// appendUTF8 appends an encoded message with the text that is not UTF-8 replaced. It
// is false if the message cannot be split into fields.
func appendUTF8(out, raw []byte, message protoreflect.MessageDescriptor) (_ []byte, ok bool) {
	for len(raw) > 0 {
		num, typ, size := protowire.ConsumeField(raw)
		if size < 0 {
			return nil, false
		}
		field := raw[:size]
		raw = raw[size:]
		known := message.Fields().ByNumber(num)
		if typ != protowire.BytesType || known == nil || known.Message() == nil && known.Kind() != protoreflect.StringKind {
			out = append(out, field...)
			continue
		}
		_, _, tag := protowire.ConsumeTag(field)
		content, _ := protowire.ConsumeBytes(field[tag:])
		if known.Message() == nil {
			content = []byte(strings.ToValidUTF8(string(content), string(utf8.RuneError)))
		} else if content, ok = appendUTF8(nil, content, known.Message()); !ok {
			return nil, false
		}
		out = protowire.AppendBytes(protowire.AppendTag(out, num, typ), content)
	}
	return out, true
}
