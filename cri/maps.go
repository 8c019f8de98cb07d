package cri

import (
	"errors"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The fields of the message that an entry of a map is.
const (
	entryKey   protowire.Number = 1
	entryValue protowire.Number = 2
)

var errNotUTF8 = errors.New("a string is not UTF-8")

// decodeMaps decodes the labels and annotations of an item that scan could read,
// in a fraction of the time that the generated types take.
func (f fields) decodeMaps(raw []byte) (maps labelled, err error) {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		size := protowire.ConsumeFieldValue(num, typ, raw[n:])
		value := raw[n : n+size]
		raw = raw[n+size:]
		if typ != protowire.BytesType {
			continue
		}
		switch num {
		case f.labels:
			err = addEntry(&maps.labels, value)
		case f.annotations:
			err = addEntry(&maps.annotations, value)
		}
		if err != nil {
			return labelled{}, err
		}
	}
	return maps, nil
}

// addEntry adds an entry, which is preceded by its length. What is missing is
// empty, and of what is there twice the last counts.
func addEntry(to *map[string]string, value []byte) error {
	entry, _ := protowire.ConsumeBytes(value)
	var key, val []byte
	for len(entry) > 0 {
		num, typ, n := protowire.ConsumeTag(entry)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(num, typ, entry[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if typ == protowire.BytesType && (num == entryKey || num == entryValue) {
			s, _ := protowire.ConsumeBytes(entry[n:])
			if !utf8.Valid(s) {
				return errNotUTF8
			}
			if num == entryKey {
				key = s
			} else {
				val = s
			}
		}
		entry = entry[n+size:]
	}
	if *to == nil {
		*to = make(map[string]string)
	}
	(*to)[string(key)] = string(val)
	return nil
}
