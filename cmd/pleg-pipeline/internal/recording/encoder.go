package recording

import (
	"encoding/json"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/internal/lenient"
)

// encoder makes the lines. One goroutine uses it.
type encoder struct {
	redact *redactor // nil if texts stay
	seed   maphash.Seed
	last   map[string][]listed // the items of the last list of each kind
	listed time.Duration       // when the last of them began
	// newest are the newest answers to other calls, by their questions; nil if nobody asks for
	// the state.
	newest map[string]line
}

// listed is an item of a list.
type listed struct {
	digest uint64
	text   json.RawMessage
	status string // the question for its status
}

func newEncoder(redact, state bool) *encoder {
	e := &encoder{seed: maphash.MakeSeed(), last: make(map[string][]listed)}
	if redact {
		e.redact = newRedactor()
	}
	if state {
		e.newest = make(map[string]line)
	}
	return e
}

// line returns an answer as a line. What cannot be decoded becomes an error of the call.
func (e *encoder) line(a *answer) line {
	l := line{At: offset(a.at), Took: offset(a.took), Method: a.method, Stream: a.stream, Pending: a.pending, Ended: a.ended}
	m := methods[a.method]
	request := empty(m.request)
	if a.request != nil && proto.Size(a.request) > 0 {
		request = proto.Clone(a.request)
		l.Request = e.text(request)
	}
	var message proto.Message
	var err error
	switch {
	case a.err != nil:
		s := status.Convert(a.err)
		l.Error = &failure{s.Code().String(), e.redact.word(s.Message())}
	case a.pending:
	case m.list != "":
		err = e.list(&l, m, a.messages)
	case len(a.messages) > 0:
		message = empty(m.reply)
		_, err = lenient.Unmarshal(a.messages[0], message)
		l.Answer = e.text(message)
	}
	if err != nil {
		l.List, l.Answer, message = nil, nil, nil
		l.Error = &failure{codes.Internal.String(), e.redact.word(err.Error())}
	}
	if e.newest != nil && m.list == "" {
		e.keep(l, request, message)
	}
	return l
}

// list encodes the items of a list. A list with a filter is whole.
func (e *encoder) list(l *line, m method, messages [][]byte) error {
	var last []listed
	if l.Request == nil {
		last = e.last[m.list]
	}
	index := make(map[uint64]int, len(last))
	for i, it := range last {
		index[it.digest] = i
	}
	items, same := []listed{}, 0
	l.List = []json.RawMessage{}
	for _, message := range messages {
		list := empty(m.reply)
		if _, err := lenient.Unmarshal(message, list); err != nil {
			return err
		}
		of := itemsOf(list)
		for i := range of.Len() {
			item := of.Get(i).Message().Interface()
			digest := e.digest(item)
			if at, known := index[digest]; known {
				delete(index, digest) // two equal items are not the same as one
				same++
				items, l.List = append(items, last[at]), append(l.List, json.RawMessage(strconv.Itoa(at)))
				continue
			}
			text := e.text(item)
			items, l.List = append(items, listed{digest, text, statusQuestion(item)}), append(l.List, text)
		}
	}
	if l.Request != nil {
		return nil
	}
	e.listed = time.Duration(l.At)
	if last != nil && same == len(items) && same == len(last) { // whatever their order
		l.Same, l.List = true, nil
	} else {
		e.last[m.list] = items
	}
	return nil
}

func statusQuestion(item proto.Message) string {
	x := exchange{}
	switch it := item.(type) {
	case *cri.PodSandbox:
		x = sandboxStatus(it.GetId(), nil)
	case *cri.Container:
		x = containerStatus(it.GetId(), nil)
	}
	return question(x.method, x.request)
}

// keep keeps an answer as the newest, with the statuses in it.
func (e *encoder) keep(l line, request, message proto.Message) {
	switch {
	case l.Method != callEvents:
		e.newest[question(l.Method, request)] = l
	case l.Ended:
		delete(e.newest, callEvents)
	case message == nil:
		e.newest[callEvents] = l
	}
	for _, x := range statusesIn(message) { // they are redacted
		e.newest[question(x.method, x.request)] = line{At: l.At, Method: x.method, Request: jsonOf(x.request), Answer: jsonOf(x.reply)}
	}
}

// state returns the lines from which a recording can start at a time: the last lists and the
// newest other answers, except statuses of what is gone.
func (e *encoder) state(at time.Duration) (lines []line) {
	exists := map[string]bool{callEvents: true, question("Version", &cri.VersionRequest{}): true}
	for _, name := range slices.Sorted(maps.Keys(e.last)) {
		l := line{At: offset(at), Method: name, List: []json.RawMessage{}}
		for _, it := range e.last[name] {
			l.List = append(l.List, it.text)
			exists[it.status] = true
		}
		lines = append(lines, l)
	}
	maps.DeleteFunc(e.newest, func(q string, l line) bool { return !exists[q] && time.Duration(l.At) < e.listed })
	for _, q := range slices.Sorted(maps.Keys(e.newest)) {
		l := e.newest[q]
		l.At, l.Took = offset(at), 0
		lines = append(lines, l)
	}
	return lines
}

// digest is the same for equal messages, whatever the order of their maps.
func (e *encoder) digest(m proto.Message) uint64 {
	bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // never fails: it was decoded before
	return maphash.Bytes(e.seed, bytes)
}

// text redacts a message in place and returns it as JSON.
func (e *encoder) text(m proto.Message) json.RawMessage {
	e.redact.message(m)
	return jsonOf(m)
}

// jsonOf returns a message, which was decoded before, as protojson.
func jsonOf(m proto.Message) json.RawMessage {
	text, _ := protojson.Marshal(m) // never fails
	return text
}
