package cri

import (
	"errors"
	"io"
	"math"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// fieldReader splits an encoded message into its fields where grpc has put it: in
// buffers of 16 KiB. To copy them into one costs a sixth of a relist of 5000 pods.
type fieldReader struct {
	buffers mem.BufferSlice // those after now
	now     []byte          // what is left of the current buffer
	joined  []byte          // room for a field that lies in more than one buffer
}

// next returns a field with its tag, which is valid until the next call, or nil at the
// end of the message.
func (r *fieldReader) next() ([]byte, error) {
	if !r.refill() {
		return nil, nil
	}
	_, _, size := consumeField(r.now)
	if size >= 0 {
		field := r.now[:size]
		r.now = r.now[size:]
		return field, nil
	}
	r.joined = r.joined[:0]
	r.join(len(r.now))
	for size < 0 {
		if err := protowire.ParseError(size); !errors.Is(err, io.ErrUnexpectedEOF) || !r.refill() {
			return nil, err
		}
		r.join(missing(r.joined))
		_, _, size = consumeField(r.joined)
	}
	if size < len(r.joined) { // a group, and all that follows
		r.now = r.joined[size:]
	}
	return r.joined[:size], nil
}

// refill goes on to the next buffer if the current one is used up, and reports whether
// the message continues.
func (r *fieldReader) refill() bool {
	for len(r.now) == 0 && len(r.buffers) > 0 {
		r.now, r.buffers = r.buffers[0].ReadOnlyData(), r.buffers[1:]
	}
	return len(r.now) > 0
}

// join moves n bytes, or what is left of the message, to joined.
func (r *fieldReader) join(n int) {
	for n > 0 && r.refill() {
		size := min(n, len(r.now))
		r.joined = append(r.joined, r.now[:size]...)
		r.now, n = r.now[size:], n-size
	}
}

// missing returns how many bytes a field lacks at least. The end of a group can only be
// found with all that follows.
func missing(field []byte) int {
	_, typ, tag := protowire.ConsumeTag(field)
	switch {
	case tag >= 0 && typ == protowire.StartGroupType:
		return math.MaxInt
	case tag < 0 || typ != protowire.BytesType:
		return 1
	}
	length, n := protowire.ConsumeVarint(field[tag:])
	if n < 0 {
		return 1
	}
	return int(min(length-uint64(len(field)-tag-n), math.MaxInt))
}

// consumeField is protowire.ConsumeField. Most fields are text of less than 128 bytes with
// a number below 16; reading these here takes a quarter off the time of an idle list.
func consumeField(b []byte) (protowire.Number, protowire.Type, int) {
	if len(b) > 1 && b[0]>>3 > 0 && b[0] < 0x80 && protowire.Type(b[0]&7) == protowire.BytesType && b[1] < 0x80 && int(b[1]) <= len(b)-2 {
		return protowire.Number(b[0] >> 3), protowire.BytesType, 2 + int(b[1])
	}
	return protowire.ConsumeField(b)
}

// valueOf returns the content of a field of type bytes.
func valueOf(field []byte) []byte {
	_, _, n := protowire.ConsumeTag(field)
	value, _ := protowire.ConsumeBytes(field[n:])
	return value
}
