package cri

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyItemsAreRefused reads lists in several answers, as a stream has them, of items that
// are well-formed, empty, or one many times.
func TestManyItemsAreRefused(t *testing.T) {
	const most = 100
	items := 0
	duplicate := []byte{0x0a, 0x05, 0x0a, 0x01, 'a', 0x1a, 0x00} // field 1 with the id and metadata
	for name, item := range map[string]func() []byte{
		"empty":     func() []byte { return []byte{0x0a, 0x00} },
		"duplicate": func() []byte { return duplicate },
		"new": func() []byte {
			items++
			return append(fmt.Appendf([]byte{0x0a, 0x0c, 0x0a, 0x08}, "%08d", items), 0x1a, 0x00)
		},
	} {
		table := newContainerTable()
		if table.most != maxItems {
			t.Errorf("a table has at most %d items, want %d", table.most, maxItems)
		}
		table.most = most
		next := func(n int) error {
			var answer []byte
			for range n {
				answer = append(answer, item()...)
			}
			return table.read(pieces(answer))
		}
		table.startList()
		if err := next(most); err != nil || max(len(table.items), len(table.skipped)) < most-1 {
			t.Errorf("%s: %d items, %d skipped, %v, want as many as allowed", name, len(table.items), len(table.skipped), err)
		}
		if err := next(2); err == nil || !strings.Contains(err.Error(), "more than 100 items") {
			t.Errorf("%s: got %v, want an error", name, err)
		}
		for range 2 { // lists with other items that fail too
			table.startList()
			if err := next(10 * most); err == nil {
				t.Errorf("%s: a list with too many items was read", name)
			}
		}
		if len(table.items) > most+1 || len(table.skipped) > most+1 || len(table.known) > 2*most+2 {
			t.Errorf("%s: %d items are kept, %d skipped, %d are known", name, len(table.items), len(table.skipped), len(table.known))
		}
		if err := table.readList(pieces(duplicate)); err != nil || len(table.items) != 1 {
			t.Errorf("%s: the next list has %d items, %v, want 1", name, len(table.items), err)
		}
	}
}
