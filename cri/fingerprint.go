package cri

import (
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields are the numbers of the fields that scan treats specially.
type fields struct{ id, labels, annotations protowire.Number }

var (
	sandboxFields   = fields{id: 1, labels: 5, annotations: 6}
	containerFields = fields{id: 1, labels: 8, annotations: 9}
)

// fingerprint is a checksum of an encoded item. Items with equal fingerprints decode
// to equal values, except for a 64-bit collision under a seed that the runtime does
// not know.
type fingerprint struct {
	labels      int // the number of entries; a repeated key counts twice
	annotations int // the size of the annotations in bytes
	sum         uint64
	valid       bool // false if the fingerprint may not be compared
}

// scan reads the id and the fingerprint of an item without decoding it. If the bytes
// cannot be split into fields, which the decoder rejects too, the id is nil. A Go
// server writes the entries of a map in a different order each time, so scan adds up
// their checksums. The order of all other fields counts.
func (f fields) scan(seed maphash.Seed, raw []byte) (id []byte, p fingerprint) {
	var maps uint64
	for len(raw) > 0 {
		num, typ, size := consumeField(raw)
		if size < 0 {
			return nil, p
		}
		field := raw[:size]
		raw = raw[size:]
		switch {
		case typ == protowire.BytesType && (num == f.labels || num == f.annotations):
			maps += maphash.Bytes(seed, field)
			if num == f.labels {
				p.labels++
			} else {
				p.annotations += size
			}
		default:
			p.sum = p.sum*prime + maphash.Bytes(seed, field)
			if num == f.id && typ == protowire.BytesType {
				id = valueOf(field)
			}
		}
	}
	p.sum = p.sum*prime + maps
	p.valid = true
	return id, p
}

// prime makes the order of sums matter (FNV-1a, 64 bits).
const prime = 1099511628211

// consumeField is protowire.ConsumeField. Most fields are text of less than 128 bytes with
// a number below 16; reading these here takes a third off the time of an idle list.
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
