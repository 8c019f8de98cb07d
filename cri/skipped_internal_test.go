package cri

import (
	"bytes"
	"fmt"
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
		if err := table.read(pieces(bytes.Repeat(item, maxSkipped))); err != nil {
			t.Errorf("%s: %v, want as many as allowed accepted", name, err)
		}
		err := table.read(pieces(bytes.Repeat(item, 1_000_000)))
		if err == nil || !strings.Contains(err.Error(), "more than 100000 malformed items") {
			t.Errorf("%s: %v, want an error", name, err)
		}
		if len(table.skipped) > maxSkipped+1 {
			t.Errorf("%s: %d are kept", name, len(table.skipped))
		}
		if err := table.read(pieces(duplicate)); err != nil || len(table.items) != 1 {
			t.Errorf("%s: the next list has %d items, %v, want 1", name, len(table.items), err)
		}
	}
}

// TestManyItemsAreRefused reads a list in several answers, as a stream has them.
func TestManyItemsAreRefused(t *testing.T) {
	const most = 100
	table, items := newContainerTable(), 0
	table.most = most
	next := func(n int) error {
		var answer []byte
		for range n {
			items++
			id := fmt.Sprintf("%08d", items)
			// Field 1 with the id and metadata.
			answer = append(append(append(answer, 0x0a, 0x0c, 0x0a, 0x08), id...), 0x1a, 0x00)
		}
		return batch{table}.read(pieces(answer))
	}
	table.startList()
	if err := next(most); err != nil || len(table.items) != most {
		t.Errorf("%d items, %v, want as many as allowed", len(table.items), err)
	}
	if err := next(1); err == nil || !strings.Contains(err.Error(), "more than 100 items") {
		t.Errorf("got %v, want an error", err)
	}
	for range 2 { // lists with other items that fail too
		table.startList()
		if err := next(most + 1); err == nil {
			t.Error("a list with too many items was read")
		}
	}
	if len(table.items) > most+1 || len(table.known) > 2*most+2 {
		t.Errorf("%d items are kept, %d are known", len(table.items), len(table.known))
	}
}
