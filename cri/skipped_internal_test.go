package cri

import (
	"bytes"
	"strings"
	"testing"
)

// TestManyMalformedItemsAreRefused reads answers of empty items, and of one item many times.
func TestManyMalformedItemsAreRefused(t *testing.T) {
	empty := []byte{0x0a, 0x00}
	// Field 1 with id "a" and metadata with uid "uid".
	duplicate := []byte{0x0a, 0x0a, 0x0a, 0x01, 'a', 0x12, 0x05, 0x12, 0x03, 'u', 'i', 'd'}
	for name, item := range map[string][]byte{"empty": empty, "duplicate": duplicate} {
		table := newSandboxTable()
		if err := table.read(bytes.Repeat(item, maxSkipped)); err != nil {
			t.Errorf("%s: %v, want as many as allowed accepted", name, err)
		}
		err := table.read(bytes.Repeat(item, 1_000_000))
		if err == nil || !strings.Contains(err.Error(), "more than 100000 malformed items") {
			t.Errorf("%s: %v, want an error", name, err)
		}
		if len(table.skipped) > maxSkipped+1 {
			t.Errorf("%s: %d are kept", name, len(table.skipped))
		}
		if err := table.read(duplicate); err != nil || len(table.items) != 1 {
			t.Errorf("%s: the next list has %d items, %v, want 1", name, len(table.items), err)
		}
	}
}
