package recording

import (
	"encoding/json"
	"io"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
)

// encoder makes lines from calls. One goroutine uses it.
type encoder struct {
	redact *redactor                   // nil if texts are kept
	last   map[string]map[string]*item // the items of the last full list of each kind, by their encoding
	node   json.RawMessage             // the last line about the node
}

// item is an item of a list. If nothing has changed, the next list contains the same item.
type item struct {
	text   json.RawMessage
	status string // the statusQuestion of the item
}

func newEncoder(redact bool) *encoder {
	e := &encoder{last: make(map[string]map[string]*item)}
	if redact {
		e.redact = newRedactor()
	}
	return e
}

// line returns a call as a line. An answer that cannot be decoded becomes an error of the call.
func (e *encoder) line(c *call) line {
	l := line{At: offset(c.at), Took: offset(c.took), Method: c.method, Pending: c.pending}
	if c.request != nil && proto.Size(c.request) > 0 {
		l.Request = e.text(proto.Clone(c.request))
	}
	err := c.err
	if err == nil && !c.pending {
		reply := empty(methods[c.method].reply)
		if _, err = lenient.Unmarshal(c.raw, reply); err != nil {
			err = status.Error(codes.Internal, err.Error())
		} else if _, isList := kinds[c.method]; isList {
			e.addItems(&l, reply)
		} else {
			l.Answer = e.text(reply)
		}
	}
	if err != nil {
		s := status.Convert(err)
		l.Error = &failure{s.Code().String(), e.redact.word(s.Message())}
	}
	l.size += len(l.Request) + len(l.Answer)
	return l
}

// addItems adds the items of a list. Items of a list with a filter are not compared.
func (e *encoder) addItems(l *line, list proto.Message) {
	of := itemsOf(list)
	l.items = make([]*item, of.Len())
	l.size = 8 * of.Len()
	next := make(map[string]*item, of.Len())
	for i := range l.items {
		message := of.Get(i).Message().Interface()
		key := wire(message)
		it := e.last[l.Method][key]
		if it == nil || l.Request != nil {
			it = &item{text: e.text(message), status: statusQuestion(message)}
			l.size += len(it.text)
		}
		l.items[i], next[key] = it, it
	}
	if l.Request == nil {
		e.last[l.Method] = next
	}
}

// text redacts a message in place and returns it as JSON.
func (e *encoder) text(m proto.Message) json.RawMessage {
	e.redact.message(m.ProtoReflect())
	text, _ := protojson.Marshal(m) // never fails: it was decoded before
	return text
}

type writer struct {
	out  io.Writer
	last map[string][]*item // the last full list of each kind
}

func newWriter(out io.Writer) *writer { return &writer{out, make(map[string][]*item)} }

// write writes the header or a line. A full list refers to the last list of its kind.
func (w *writer) write(v any) error {
	if l, ok := v.(line); ok && l.items != nil {
		w.compareItems(&l)
		v = l
	}
	lines := json.NewEncoder(w.out)
	lines.SetEscapeHTML(false)
	return lines.Encode(v)
}

func (w *writer) compareItems(l *line) {
	full := l.Request == nil
	last, compared := w.last[l.Method]
	compared = compared && full
	index := make(map[*item]int, len(last))
	for i, it := range last {
		index[it] = i
	}
	same := 0
	l.List = make([]json.RawMessage, len(l.items))
	for i, it := range l.items {
		l.List[i] = it.text
		if at, ok := index[it]; ok && compared {
			l.List[i] = json.RawMessage(strconv.Itoa(at))
			delete(index, it) // each old item is used once, even if two are equal
			same++
		}
	}
	switch {
	case compared && same == len(l.items) && same == len(last): // whatever their order
		l.Same, l.List = true, nil
	case full:
		w.last[l.Method] = l.items
	}
}
