package recording

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// answer is what the tap has seen of a call, or of a stream of events.
type answer struct {
	call     string
	request  any
	at, took time.Duration
	messages [][]byte
	err      error
	pending  bool
	stream   int
	ended    bool
}

// encoder writes the lines. One goroutine uses it.
type encoder struct {
	lines   *json.Encoder
	header  Header
	began   time.Time
	started bool
	redact  *redactor // nil to leave everything as it is
	seed    maphash.Seed
	known   [kinds]known
}

// known is what has been written last, to be told by "same" and "keep".
type known struct {
	items    []uint64 // the digests of the last list
	listed   bool     // the last list was no failure
	statuses map[string]uint64
}

func newEncoder(out Output, o Options) *encoder {
	e := &encoder{
		lines:  json.NewEncoder(out),
		header: Header{Format: formatName, Version: formatVersion, Program: o.Program, Redacted: o.Redact},
		seed:   maphash.MakeSeed(),
	}
	e.lines.SetEscapeHTML(false)
	if o.Redact {
		e.redact = newRedactor()
	}
	for k := range e.known {
		e.known[k].statuses = make(map[string]uint64)
	}
	return e
}

// write writes one answer, and the header before the first.
func (e *encoder) write(a answer) error {
	r := record{At: offset(a.at), Took: offset(a.took), Call: a.call, Pending: a.pending}
	if err := e.fill(&r, a); err != nil {
		return fmt.Errorf("%s: %w", a.call, err)
	}
	if !e.started {
		e.started = true
		e.header.Began = e.began.Round(0)
		if err := e.lines.Encode(e.header); err != nil {
			return err
		}
	}
	return e.lines.Encode(r)
}

// end writes the last line.
func (e *encoder) end(length time.Duration) error {
	return e.lines.Encode(record{At: offset(length), End: true})
}

func (e *encoder) fill(r *record, a answer) error {
	if a.err != nil {
		r.Error = newFailure(a.err)
		if e.redact != nil {
			r.Error.Message = e.redact.word(r.Error.Message)
		}
	}
	switch k, list := listKind(a.call); {
	case list:
		return e.list(r, k, a)
	case a.call == callEvents:
		return e.event(r, a)
	case a.call == callVersion:
		return e.version(r, a)
	}
	k, _ := statusKind(a.call)
	return e.status(r, k, a)
}

func (e *encoder) version(r *record, a answer) error {
	if a.err != nil || a.pending {
		return nil
	}
	version := &runtimeapi.VersionResponse{}
	if err := e.decode(a.messages, version); err != nil {
		return err
	}
	if !e.started {
		e.header.RuntimeName, e.header.RuntimeVersion = version.GetRuntimeName(), version.GetRuntimeVersion()
	}
	return put(&r.Answer, version)
}

func (e *encoder) event(r *record, a answer) error {
	r.Stream, r.Ended = a.stream, a.ended
	if len(a.messages) == 0 {
		return nil
	}
	event := &runtimeapi.ContainerEventResponse{}
	if err := e.decode(a.messages, event); err != nil {
		return err
	}
	return put(&r.Answer, event)
}

func (e *encoder) status(r *record, k kind, a answer) error {
	var id string
	switch request := a.request.(type) {
	case *runtimeapi.PodSandboxStatusRequest:
		id = request.GetPodSandboxId()
	case *runtimeapi.ContainerStatusRequest:
		id = request.GetContainerId()
	}
	r.ID = id
	if e.redact != nil {
		r.ID = e.redact.id(id)
	}
	if a.err != nil || a.pending {
		delete(e.known[k].statuses, id)
		return nil
	}
	status := k.newStatus()
	if err := e.decode(a.messages, status); err != nil {
		return err
	}
	digest, err := e.digest(status)
	if err != nil {
		return err
	}
	if last, ok := e.known[k].statuses[id]; ok && last == digest {
		r.Same = true
		return nil
	}
	e.known[k].statuses[id] = digest
	return put(&r.Answer, status)
}

func (e *encoder) list(r *record, k kind, a answer) error {
	filter := filterOf(a.request)
	if filter != nil {
		if e.redact != nil {
			filter = proto.Clone(filter)
			e.redact.message(filter)
		}
		if err := put(&r.Filter, filter); err != nil {
			return err
		}
	}
	if a.err != nil || a.pending {
		e.known[k].listed = e.known[k].listed && filter != nil
		return nil
	}
	items, ids, err := e.items(k, a.messages)
	if err != nil {
		return err
	}
	if filter != nil {
		r.List = make([]part, 0, len(items))
		for _, item := range items {
			if err := appendItem(&r.List, item); err != nil {
				return err
			}
		}
		return nil
	}
	maps.DeleteFunc(e.known[k].statuses, func(id string, _ uint64) bool { return !ids[id] })
	return e.change(r, &e.known[k], items)
}

// items decodes a list and returns the original ids in it as well.
func (e *encoder) items(k kind, messages [][]byte) ([]proto.Message, map[string]bool, error) {
	var items []proto.Message
	ids := make(map[string]bool)
	for _, message := range messages {
		if k == sandboxes {
			list := &runtimeapi.ListPodSandboxResponse{}
			if err := proto.Unmarshal(message, list); err != nil {
				return nil, nil, err
			}
			for _, s := range list.GetItems() {
				ids[s.GetId()] = true
				items = append(items, s)
			}
			continue
		}
		list := &runtimeapi.ListContainersResponse{}
		if err := proto.Unmarshal(message, list); err != nil {
			return nil, nil, err
		}
		for _, c := range list.GetContainers() {
			ids[c.GetId()] = true
			items = append(items, c)
		}
	}
	if e.redact != nil {
		for _, item := range items {
			e.redact.message(item)
		}
	}
	return items, ids, nil
}

// change tells a list by the last one.
func (e *encoder) change(r *record, last *known, items []proto.Message) error {
	place := make(map[uint64]int, len(last.items))
	for i, digest := range last.items {
		place[digest] = i
	}
	r.List = []part{}
	now := make([]uint64, 0, len(items))
	for _, item := range items {
		digest, err := e.digest(item)
		if err != nil {
			return err
		}
		now = append(now, digest)
		if at, ok := place[digest]; ok {
			r.List = keep(r.List, at)
		} else if err := appendItem(&r.List, item); err != nil {
			return err
		}
	}
	whole := len(r.List) == 0
	if len(r.List) == 1 && r.List[0].Keep != nil {
		whole = r.List[0].Keep[0] == 0 && r.List[0].Keep[1] == len(last.items)
	}
	if last.listed && whole && len(now) == len(last.items) {
		r.Same, r.List = true, nil
	}
	last.items, last.listed = now, true
	return nil
}

// keep adds an item of the last list, to the range before if it goes on there.
func keep(parts []part, at int) []part {
	if n := len(parts); n > 0 && parts[n-1].Keep != nil {
		if last := parts[n-1].Keep; last[0]+last[1] == at {
			last[1]++
			return parts
		}
	}
	return append(parts, part{Keep: &[2]int{at, 1}})
}

func appendItem(parts *[]part, item proto.Message) error {
	var p part
	err := put(&p.Put, item)
	*parts = append(*parts, p)
	return err
}

// decode takes the one message of an answer and redacts it.
func (e *encoder) decode(messages [][]byte, into proto.Message) error {
	for _, message := range messages {
		if err := proto.Unmarshal(message, into); err != nil {
			return err
		}
	}
	if e.redact != nil {
		e.redact.message(into)
	}
	return nil
}

// digest stands for a message, whatever the order of the entries of its maps.
func (e *encoder) digest(m proto.Message) (uint64, error) {
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return maphash.Bytes(e.seed, bytes), err
}

func put(into *json.RawMessage, m proto.Message) error {
	text, err := protojson.Marshal(m)
	*into = text
	return err
}

// filterOf returns the filter of a request for a list, or nil if it asks for
// everything.
func filterOf(request any) proto.Message {
	switch request := request.(type) {
	case interface {
		GetFilter() *runtimeapi.PodSandboxFilter
	}:
		if f := request.GetFilter(); f != nil && proto.Size(f) > 0 {
			return f
		}
	case interface {
		GetFilter() *runtimeapi.ContainerFilter
	}:
		if f := request.GetFilter(); f != nil && proto.Size(f) > 0 {
			return f
		}
	}
	return nil
}
