package simruntime

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// firstField is the number of the repeated field of every list response used
// here, ListPodSandbox, ListContainers and their streaming forms, and of the
// status in the response to a status call.
const firstField protowire.Number = 1

// encodeElement is m as one element of a list response, or as all of the
// response to a status call. Objects are encoded when they change, so that
// listing thousands of them is copying bytes.
func encodeElement(m proto.Message) []byte {
	size := proto.Size(m)
	b := make([]byte, 0, size+8)
	b = protowire.AppendTag(b, firstField, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil { // only a string that is not UTF-8 can do that
		panic("simruntime: encode list element: " + err.Error())
	}
	return b
}

// encodedList is an unfiltered list as it was at one generation.
type encodedList struct {
	generation uint64
	body       []byte
}

// concatNewest joins the encodings of a list kept oldest first.
func concatNewest[T any](items []T, enc func(T) []byte) []byte {
	size := 0
	for _, it := range items {
		size += len(enc(it))
	}
	body := make([]byte, 0, size)
	for _, it := range slices.Backward(items) {
		body = append(body, enc(it)...)
	}
	return body
}

// setBody makes msg encode to body. The bytes of unknown fields are written
// as they are, which is what makes the answers cheap.
func setBody(msg proto.Message, body []byte) {
	if len(body) > 0 {
		msg.ProtoReflect().SetUnknown(body)
	}
}

// imageRef is a digest that depends on the image name alone.
func imageRef(image string) string {
	sum := sha256.Sum256([]byte(image))
	return "sha256:" + hex.EncodeToString(sum[:])
}
