package recording

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording/format"
)

// answer is what the tap saw of a call, or of an event stream.
type answer struct {
	call     string
	request  any // nil before a stream has sent it
	at, took time.Duration
	messages [][]byte
	err      error
	pending  bool // without an answer for pendingAfter
	stream   int
	ended    bool
}

// encoder writes the lines. One goroutine uses it.
type encoder struct {
	lines   *json.Encoder
	header  format.Header
	started bool
	redact  *redactor // nil if texts stay
	seed    maphash.Seed
	last    [format.Kinds]lastAnswers
}

// lastAnswers are the last ones written, to which "same" and "keep" refer.
type lastAnswers struct {
	items    []uint64 // digests
	listed   bool     // the last list did not fail
	statuses map[string]uint64
}

func newEncoder(out Output, o Options) *encoder {
	e := &encoder{
		lines:  json.NewEncoder(out),
		header: format.Header{Format: format.Name, Version: format.Version, Program: o.Program, Redacted: o.Redact},
		seed:   maphash.MakeSeed(),
	}
	e.lines.SetEscapeHTML(false)
	if o.Redact {
		e.redact = newRedactor()
	}
	for k := range e.last {
		e.last[k].statuses = make(map[string]uint64)
	}
	return e
}

// write writes one answer, and the header before the first.
func (e *encoder) write(a *answer, began time.Time) error {
	r := format.Line{
		At: format.Offset(a.at), Took: format.Offset(a.took), Call: a.call, Pending: a.pending, Stream: a.stream, Ended: a.ended,
	}
	if a.err != nil {
		s := status.Convert(a.err)
		r.Error = &format.Failure{Code: format.Code(s.Code()), Message: s.Message()}
		if e.redact != nil {
			r.Error.Message = e.redact.word(r.Error.Message)
		}
	}
	if err := e.fill(&r, format.Methods[a.call], a); err != nil {
		return fmt.Errorf("%s: %w", a.call, err)
	}
	if !e.started {
		e.started = true
		e.header.Began = began.Round(0)
		if err := e.lines.Encode(e.header); err != nil {
			return err
		}
	}
	return e.lines.Encode(r)
}

// end writes the last line.
func (e *encoder) end(length time.Duration) error {
	return e.lines.Encode(format.Line{At: format.Offset(length), End: true})
}

func (e *encoder) fill(r *format.Line, m format.Method, a *answer) error {
	switch {
	case m.List:
		return e.list(r, m, a)
	case m.Status:
		return e.status(r, m, a)
	case a.err != nil || len(a.messages) == 0:
		return nil
	}
	message, err := e.decode(m, a.messages[0])
	if err != nil {
		return err
	}
	if version, ok := message.(*cri.VersionResponse); ok && !e.started {
		e.header.RuntimeName, e.header.RuntimeVersion = version.GetRuntimeName(), version.GetRuntimeVersion()
	}
	return put(&r.Answer, message)
}

func (e *encoder) status(r *format.Line, m format.Method, a *answer) error {
	id, last := format.IDOf(m.Kind, a.request), e.last[m.Kind].statuses
	r.ID = id
	if e.redact != nil {
		r.ID = e.redact.id(id)
	}
	if a.err != nil || len(a.messages) == 0 {
		delete(last, id)
		return nil
	}
	message, err := e.decode(m, a.messages[0])
	if err != nil {
		return err
	}
	digest, err := e.digest(message)
	if err != nil {
		return err
	}
	if before, ok := last[id]; ok && before == digest {
		r.Same = true
		return nil
	}
	last[id] = digest
	return put(&r.Answer, message)
}

func (e *encoder) list(r *format.Line, m format.Method, a *answer) error {
	filter, last := format.FilterOf(a.request), &e.last[m.Kind]
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
		last.listed = last.listed && filter != nil
		return nil
	}
	items, ids, err := e.items(m, a.messages)
	if err != nil {
		return err
	}
	if filter != nil {
		last = &lastAnswers{} // nothing to refer to
	}
	maps.DeleteFunc(last.statuses, func(id string, _ uint64) bool { return !ids[id] })
	return e.change(r, last, items)
}

// items decodes a list. It returns the original ids as well.
func (e *encoder) items(m format.Method, messages [][]byte) (items []proto.Message, ids map[string]bool, err error) {
	ids = make(map[string]bool)
	for _, message := range messages {
		list := m.NewReply()
		if err := proto.Unmarshal(message, list); err != nil {
			return nil, nil, err
		}
		all := format.ItemsOf(list)
		for i := range all.Len() {
			item := all.Get(i).Message().Interface()
			ids[format.Field(item, "id").String()] = true
			if e.redact != nil {
				e.redact.message(item)
			}
			items = append(items, item)
		}
	}
	return items, ids, nil
}

// change writes a list as the difference to the last one.
func (e *encoder) change(r *format.Line, last *lastAnswers, items []proto.Message) error {
	place := make(map[uint64]int, len(last.items))
	for i, digest := range last.items {
		place[digest] = i
	}
	r.List = []format.Part{}
	now := make([]uint64, len(items))
	for i, item := range items {
		var err error
		if now[i], err = e.digest(item); err != nil {
			return err
		}
		if at, ok := place[now[i]]; ok {
			r.List = keep(r.List, at)
			continue
		}
		var p format.Part
		if err := put(&p.Put, item); err != nil {
			return err
		}
		r.List = append(r.List, p)
	}
	whole := len(r.List) == 0 || len(r.List) == 1 && r.List[0].Keep != nil && r.List[0].Keep[0] == 0
	if last.listed && whole && len(now) == len(last.items) {
		r.Same, r.List = true, nil
	}
	last.items, last.listed = now, true
	return nil
}

// keep adds an item of the last list, to the range before it if that ends there.
func keep(parts []format.Part, at int) []format.Part {
	if n := len(parts); n > 0 && parts[n-1].Keep != nil {
		if last := parts[n-1].Keep; last[0]+last[1] == at {
			last[1]++
			return parts
		}
	}
	return append(parts, format.Part{Keep: &[2]int{at, 1}})
}

// decode decodes and redacts an answer that is one message.
func (e *encoder) decode(m format.Method, message []byte) (proto.Message, error) {
	into := m.NewReply()
	if err := proto.Unmarshal(message, into); err != nil {
		return nil, err
	}
	if e.redact != nil {
		e.redact.message(into)
	}
	return into, nil
}

// digest is the same for equal messages, whatever the order of their maps.
func (e *encoder) digest(m proto.Message) (uint64, error) {
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return maphash.Bytes(e.seed, bytes), err
}

func put(into *json.RawMessage, m proto.Message) error {
	text, err := protojson.Marshal(m)
	*into = text
	return err
}
