package cri

import (
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
)

// fields are the numbers of the fields of a listed item that scan treats apart.
type fields struct {
	id, labels, annotations, image protowire.Number
	// unused has a bit for each field below 64 that nobody looks at.
	unused uint64
}

// without reports whether a field is of the unused ones.
func (f fields) without(num protowire.Number) bool { return num < 64 && f.unused>>num&1 != 0 }

var (
	sandboxFields   = fields{id: 1, labels: 5, annotations: 6}
	containerFields = fields{id: 1, labels: 8, annotations: 9, image: 4}
)

// fingerprint stands for the bytes of an item. Equal prints mean items that
// decode equally, but for the chance of a 64-bit collision under a seed that
// the runtime does not know.
type fingerprint struct {
	size   int
	labels int    // the number of entries; a repeated key counts twice
	notes  int    // that of the annotations
	maps   uint64 // stands for the labels and annotations alone
	sum    uint64
	valid  bool // false if the print may not be used again
}

// sameMaps reports whether two items have equal labels and annotations.
func (p fingerprint) sameMaps(other fingerprint) bool {
	return p.valid && other.valid && p.labels == other.labels && p.notes == other.notes && p.maps == other.maps
}

// counts reports whether decoding has found as many labels and annotations. Of a
// key that comes twice the last one counts, which a sum cannot tell.
func (p fingerprint) counts(labels, annotations map[string]string) bool {
	return p.labels == len(labels) && p.notes == len(annotations)
}

// scan reads the id and the fingerprint of an item without decoding it; there
// is no id if the bytes cannot be split into fields, which the decoder will
// reject too. A Go server writes the entries of a map in another order each
// time, so these are summed up; the order of all else counts. Nothing of the
// image is used, so the order in it does not matter either, and it holds a map.
func (f fields) scan(seed maphash.Seed, raw []byte) (id []byte, p fingerprint) {
	if f.unused == 0 {
		p.size = len(raw)
	}
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, p
		}
		size := protowire.ConsumeFieldValue(num, typ, raw[n:])
		if size < 0 {
			return nil, p
		}
		field, value := raw[:n+size], raw[n:n+size]
		raw = raw[n+size:]
		switch {
		case f.without(num):
		case typ == protowire.BytesType && (num == f.labels || num == f.annotations):
			p.maps += maphash.Bytes(seed, field)
			if num == f.labels {
				p.labels++
			} else {
				p.notes++
			}
		case typ == protowire.BytesType && num == f.image:
			image, ok := sumFields(seed, value)
			if !ok {
				return nil, p
			}
			p.sum = p.sum*prime + image
		default:
			p.sum = p.sum*prime + maphash.Bytes(seed, field)
			if num == f.id && typ == protowire.BytesType {
				id, _ = protowire.ConsumeBytes(value)
			}
		}
	}
	p.sum = p.sum*prime + p.maps
	p.valid = true
	return id, p
}

// prime makes the order of sums matter (FNV-1a, 64 bits).
const prime = 1099511628211

// sumFields adds up the fields of a message, which is preceded by its length.
func sumFields(seed maphash.Seed, value []byte) (sum uint64, ok bool) {
	message, _ := protowire.ConsumeBytes(value)
	for len(message) > 0 {
		_, _, n := protowire.ConsumeField(message)
		if n < 0 {
			return 0, false
		}
		sum += maphash.Bytes(seed, message[:n])
		message = message[n:]
	}
	return sum, true
}

// appendRest appends an item that scan could read to rest, without its labels and
// annotations and what is not used.
func (f fields) appendRest(rest, raw []byte) []byte {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeField(raw)
		if !f.without(num) && (typ != protowire.BytesType || num != f.labels && num != f.annotations) {
			rest = append(rest, raw[:n]...)
		}
		raw = raw[n:]
	}
	return rest
}

// restSize is enough for what most items and statuses have besides their labels
// and annotations.
const restSize = 512
