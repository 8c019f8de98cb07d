package cri

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestFieldsCrossBuffers splits messages with fields of all types, and their beginnings,
// into buffers of each size.
func TestFieldsCrossBuffers(t *testing.T) {
	var message []byte
	message = protowire.AppendBytes(protowire.AppendTag(message, 1, protowire.BytesType), bytes.Repeat([]byte("x"), 200))
	message = protowire.AppendVarint(protowire.AppendTag(message, 2000, protowire.VarintType), 1<<40)
	message = protowire.AppendFixed32(protowire.AppendTag(message, 3, protowire.Fixed32Type), 3)
	message = protowire.AppendBytes(protowire.AppendTag(message, 1, protowire.BytesType), nil)
	message = protowire.AppendTag(message, 5, protowire.StartGroupType)
	message = protowire.AppendBytes(protowire.AppendTag(message, 1, protowire.BytesType), []byte("in a group"))
	message = protowire.AppendTag(message, 5, protowire.EndGroupType)
	message = protowire.AppendFixed64(protowire.AppendTag(message, 4, protowire.Fixed64Type), 4)
	tooLong := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.BytesType), 1<<63)
	malformed := append(slices.Clone(message), 0x07)

	for _, whole := range [][]byte{message, tooLong, malformed} {
		for end := range len(whole) + 1 {
			want, wantErr := fieldsOf(mem.BufferSlice{mem.SliceBuffer(whole[:end])})
			for size := 1; size <= end; size++ {
				buffers := mem.BufferSlice{mem.SliceBuffer(nil)}
				for part := range slices.Chunk(whole[:end], size) {
					buffers = append(buffers, mem.SliceBuffer(part))
				}
				if got, err := fieldsOf(buffers); !slices.EqualFunc(got, want, bytes.Equal) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
					t.Fatalf("%d bytes in buffers of %d: %d fields, %v, want %d, %v", end, size, len(got), err, len(want), wantErr)
				}
			}
		}
	}
	if fields, err := fieldsOf(mem.BufferSlice{mem.SliceBuffer(message)}); len(fields) != 6 || err != nil {
		t.Errorf("%d fields, %v, want 6", len(fields), err)
	}
}

func fieldsOf(buffers mem.BufferSlice) (fields [][]byte, err error) {
	r := fieldReader{buffers: buffers}
	for {
		field, err := r.next()
		if field == nil {
			return fields, err
		}
		fields = append(fields, slices.Clone(field))
	}
}

// TestShortFieldsAreSplitLikeOthers compares all first two bytes, with any number of bytes
// after them.
func TestShortFieldsAreSplitLikeOthers(t *testing.T) {
	field := make([]byte, 140)
	for first := range 0x10000 {
		field[0], field[1] = byte(first>>8), byte(first)
		for _, size := range []int{0, 1, 2, int(field[1]) + 1, int(field[1]) + 2, len(field)} {
			b := field[:min(size, len(field))]
			num, typ, n := consumeField(b)
			if wantNum, wantType, want := protowire.ConsumeField(b); num != wantNum || typ != wantType || n != want {
				t.Fatalf("% x with %d bytes: field %d of type %d in %d bytes, want %d, %d, %d", b[:min(2, size)], size, num, typ, n, wantNum, wantType, want)
			}
		}
	}
}

// TestRoomForFieldIsBounded reads an item in two buffers. What it takes to join them is
// kept for the next list, unless the item was huge.
func TestRoomForFieldIsBounded(t *testing.T) {
	for size, kept := range map[int]bool{1000: true, 10 * maxJoined: false} {
		item, err := proto.Marshal(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{
			Id: strings.Repeat("a", size), Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		table := newSandboxTable()
		if err := table.readList(mem.BufferSlice{mem.SliceBuffer(item[:500]), mem.SliceBuffer(item[500:])}); err != nil || len(table.items) != 1 {
			t.Fatalf("%d items, %v, want 1", len(table.items), err)
		}
		if room := cap(table.joined); room > maxJoined || (room > 0) != kept {
			t.Errorf("after an item of %d bytes, room for %d is kept", size, room)
		}
	}
}
