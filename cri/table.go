package cri

import (
	"errors"
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// itemsField is the number of the only field of the list responses, streamed or
// not.
const itemsField protowire.Number = 1

// table holds the items of one list call. It keeps the items of the last
// answer, decodes of the next one only what differs, and returns equal pointers
// for equal bytes: on an idle node decoding labels and annotations that never
// change is most of the cost of a list. One call at a time may use it.
type table struct {
	fields fields
	// decode decodes an item. If before is not nil, the labels and annotations
	// are those of before, and raw is without them.
	decode  func(raw []byte, before *item) (it *item, labels int, err error)
	seed    maphash.Seed
	known   map[string]*knownItem // by id
	current uint64                // the number of the answer, to tell what is gone

	items   []*item        // of the last answer, valid until the next
	skipped []skippedEntry // what was wrong with the last answer
	// changed is set by an answer that differs from the one before, also by the
	// part of one that could not be read to its end. Whoever uses the items
	// clears it.
	changed bool
	// portioned is set while the answers are portions that may overlap.
	portioned bool
}

type knownItem struct {
	item   *item
	print  fingerprint
	seenIn uint64
}

type skippedEntry struct {
	item   *item
	reason reason
}

func newSandboxTable() *table {
	return newTable(sandboxFields, func(raw []byte, before *item) (*item, int, error) {
		s := &runtimeapi.PodSandbox{}
		if err := proto.Unmarshal(raw, s); err != nil {
			return nil, 0, err
		}
		it := sandboxItem(s)
		if before != nil {
			it.labels = before.labels
		}
		return it, len(s.GetLabels()), nil
	})
}

func newContainerTable() *table {
	return newTable(containerFields, func(raw []byte, before *item) (*item, int, error) {
		c := &runtimeapi.Container{}
		if err := proto.Unmarshal(raw, c); err != nil {
			return nil, 0, err
		}
		it := containerItem(c)
		if before != nil {
			it.podUID, it.podName, it.podNamespace = before.podUID, before.podName, before.podNamespace
		}
		return it, len(c.GetLabels()), nil
	})
}

func newTable(f fields, decode func([]byte, *item) (*item, int, error)) *table {
	return &table{fields: f, decode: decode, seed: maphash.MakeSeed(), known: make(map[string]*knownItem), changed: true}
}

// batch takes in one of several answers that are one list together. The first
// is preceded by begin, the last one followed by end.
type batch struct{ *table }

func (b batch) read(answer []byte) error { return b.take(answer) }

// read takes in an answer that is the whole list.
func (t *table) read(answer []byte) error {
	t.begin()
	if err := t.take(answer); err != nil {
		return err
	}
	t.end()
	return nil
}

func (t *table) begin() {
	t.current++
	clear(t.items)
	t.items, t.skipped = t.items[:0], nil
}

// take takes in an answer. It accepts and rejects what proto.Unmarshal does.
// After an error, and before end, the items are incomplete.
func (t *table) take(answer []byte) error {
	for len(answer) > 0 {
		num, typ, n := protowire.ConsumeTag(answer)
		if n < 0 || num > protowire.MaxValidNumber {
			return errors.New("malformed field")
		}
		answer = answer[n:]
		if n = protowire.ConsumeFieldValue(num, typ, answer); n < 0 {
			return protowire.ParseError(n)
		}
		if num == itemsField && typ == protowire.BytesType {
			raw, _ := protowire.ConsumeBytes(answer)
			if err := t.add(raw); err != nil {
				return err
			}
		}
		answer = answer[n:]
	}
	return nil
}

// add takes in one item. An item that is malformed is not kept, and so decoded
// each time.
func (t *table) add(raw []byte) error {
	id, seen := t.fields.scan(t.seed, raw)
	known := t.known[string(id)]
	if known != nil && known.print == seen {
		t.place(known)
		return nil
	}
	var before *item
	if known != nil && known.print.sameMaps(seen) {
		before, raw = known.item, t.fields.appendRest(make([]byte, 0, restSize), raw)
	}
	it, labels, err := t.decode(raw, before)
	if err != nil {
		return err
	}
	if it.skip != keep {
		t.addMalformed(it)
		return nil
	}
	// Of a key that comes twice the last one counts, which a sum cannot tell.
	seen.valid = before != nil || seen.labels == labels
	known = t.known[string(it.ID)]
	if known == nil {
		known = &knownItem{}
		t.known[string(it.ID)] = known
	}
	if known.seenIn != t.current {
		known.item, known.print = it, seen
		t.changed = true
	}
	t.place(known)
	return nil
}

// addMalformed takes in an item that lacks something. It proves that there is
// something with its id all the same: what is missing is taken from the list before
// or, for something new, from the kubelet's labels. Otherwise it is skipped.
func (t *table) addMalformed(it *item) {
	t.skipped = append(t.skipped, skippedEntry{it, it.skip})
	known := t.known[string(it.ID)]
	switch {
	case known == nil && !it.labelled:
		return
	case known == nil:
		completed := *it
		completed.skip = keep
		known = &knownItem{item: &completed}
		t.known[string(it.ID)] = known
		t.changed = true
	case known.seenIn != t.current && it.State != known.item.State:
		completed, container := *known.item, *known.item.Container
		container.State = it.State
		completed.Container = &container
		known.item, known.print = &completed, fingerprint{}
		t.changed = true
	}
	t.place(known)
}

// place adds a known item to the list, unless it is there already: the first
// item of an id counts.
func (t *table) place(known *knownItem) {
	if known.seenIn == t.current {
		if t.portioned {
			return
		}
		t.skipped = append(t.skipped, skippedEntry{known.item, duplicateID})
		return
	}
	known.seenIn = t.current
	t.items = append(t.items, known.item)
}

// placed reports whether the list so far has an id.
func (t *table) placed(id pleg.ContainerID) bool {
	known := t.known[string(id)]
	return known != nil && known.seenIn == t.current
}

// keep adds the item that an id had in the list before, if any.
func (t *table) keep(id pleg.ContainerID) {
	if known := t.known[string(id)]; known != nil {
		t.place(known)
	}
}

// end forgets what was not in the list.
func (t *table) end() {
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
