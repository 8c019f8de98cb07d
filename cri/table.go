package cri

import (
	"errors"
	"fmt"
	"hash/maphash"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
)

// itemsField is the number of the only field of the list responses, streamed or not.
const itemsField protowire.Number = 1

// maxItems is the greatest number of sandboxes, of containers, and of malformed items in a list. No
// node contains as many. A runtime that invents them must not fill the memory: a malformed item of
// two bytes costs some 250 here.
const maxItems = 100_000

// table holds the items of one list call. It keeps the items of the last answer,
// decodes only the items that changed in the next one, and returns equal pointers for
// equal bytes: on an idle node, most of the cost of a list is to decode labels and
// annotations that never change. One call at a time may use it.
type table struct {
	fields fields
	// decode returns an item and its number of labels.
	decode  func(raw []byte) (it *item, labels int, err error)
	seed    maphash.Seed
	most    int                   // maxItems, or less in tests
	known   map[string]*knownItem // by id
	current uint64                // the number of the list, to find items that are gone
	raw     []byte                // the last answer in one piece; a buffer of grpc's pool is cleared each time

	items   []*item       // of the last answer, valid until the next
	skipped []skippedItem // the malformed items of the last answer
	// changed is true if an answer, or the readable part of a broken one, differed from the answer
	// before. The user of the items clears it.
	changed bool
	// portioned is true while the answers are portions, which may overlap.
	portioned bool
}

type knownItem struct {
	item   *item
	print  fingerprint
	seenIn uint64
}

func newSandboxTable() *table   { return newTable(sandboxFields, sandboxItem) }
func newContainerTable() *table { return newTable(containerFields, containerItem) }

// newTable returns a table of the items that convert makes from messages.
func newTable[T any, M interface {
	*T
	proto.Message
	GetLabels() map[string]string
}](f fields, convert func(M) *item) *table {
	decode := func(raw []byte) (*item, int, error) {
		m := M(new(T))
		replaced, err := lenient.Unmarshal(raw, m)
		it := convert(m)
		it.checkText(replaced)
		return it, len(m.GetLabels()), err
	}
	return &table{fields: f, decode: decode, seed: maphash.MakeSeed(), most: maxItems, known: make(map[string]*knownItem), changed: true}
}

// startList begins a list of one or more answers, which finishList ends.
func (t *table) startList() {
	t.current++
	clear(t.items)
	t.items, t.skipped, t.portioned = t.items[:0], nil, false
	if len(t.known) > 2*t.most { // lists that failed have left items there
		clear(t.known)
		t.changed = true
	}
}

// read adds the items of an answer. It accepts and rejects the same bytes as
// proto.Unmarshal, except that it rejects too many items and accepts text that
// is not UTF-8. After an error, and before finishList, the items are incomplete.
func (t *table) read(answer mem.BufferSlice) error {
	t.raw = t.raw[:0]
	for _, buffer := range answer {
		t.raw = append(t.raw, buffer.ReadOnlyData()...)
	}
	for left := t.raw; len(left) > 0; {
		num, typ, size := protowire.ConsumeField(left)
		if size < 0 {
			return protowire.ParseError(size)
		}
		field := left[:size]
		left = left[size:]
		if num > protowire.MaxValidNumber {
			return errors.New("malformed field")
		}
		if num != itemsField || typ != protowire.BytesType {
			continue
		}
		if err := t.add(valueOf(field)); err != nil {
			return err
		}
		if max(len(t.items), len(t.skipped)) > t.most {
			return fmt.Errorf("more than %d items", t.most)
		}
	}
	return nil
}

// add adds one item. A malformed item is not kept, so it is decoded in every list.
func (t *table) add(raw []byte) error {
	id, seen := t.fields.scan(t.seed, raw)
	known := t.known[string(id)]
	if known != nil && known.print == seen {
		t.include(known)
		return nil
	}
	it, labels, err := t.decode(raw)
	if err != nil {
		return err
	}
	if it.skip != "" {
		t.addMalformed(it, known)
		return nil
	}
	it.bytes, it.annotations = len(raw), seen.annotations
	// The sum cannot show which value of a repeated key comes last.
	seen.valid = seen.labels == labels
	known = t.known[string(it.ID)]
	if known == nil {
		known = &knownItem{}
		t.known[string(it.ID)] = known
	}
	if known.seenIn != t.current {
		known.item, known.print = it, seen
		t.changed = true
	}
	t.include(known)
	return nil
}

// addMalformed adds an incomplete item. The item exists, so addMalformed completes it
// from the previous list or, if it is new, from the kubelet's labels. If neither contains the data,
// the item is skipped. known is the item with its id in the previous list.
func (t *table) addMalformed(it *item, known *knownItem) {
	t.skipped = append(t.skipped, it.skipped(it.skip))
	switch {
	case known == nil && !it.labelled:
		return
	case known == nil:
		completed := *it
		completed.skip = ""
		known = &knownItem{item: &completed}
		t.known[string(it.ID)] = known
		t.changed = true
	case known.seenIn != t.current && it.State != known.item.State:
		changed, container := *known.item, *known.item.Container
		container.State = it.State
		changed.Container = &container
		known.item, known.print = &changed, fingerprint{}
		t.changed = true
	}
	t.include(known)
}

// include adds a known item to the list, unless the list already contains an item with its
// id.
func (t *table) include(known *knownItem) {
	if known.seenIn == t.current {
		if t.portioned {
			return
		}
		t.skipped = append(t.skipped, known.item.skipped(duplicateID))
		return
	}
	known.seenIn = t.current
	t.items = append(t.items, known.item)
}

// finishList forgets the items that were not in the list.
func (t *table) finishList() {
	if len(t.items) == len(t.known) {
		return
	}
	t.changed = true
	for id, known := range t.known {
		if known.seenIn != t.current {
			delete(t.known, id)
		}
	}
}
