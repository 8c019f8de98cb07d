package recording

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	header  Header
	started bool
	redact  *redactor // nil if texts stay
	seed    maphash.Seed
	last    [kinds]lastAnswers
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
		header: Header{Format: formatName, Version: formatVersion, Program: o.Program, Redacted: o.Redact},
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
	l := line{At: offset(a.at), Took: offset(a.took), Call: a.call, Pending: a.pending, Stream: a.stream, Ended: a.ended}
	if a.err != nil {
		s := status.Convert(a.err)
		l.Error = &failure{s.Code().String(), e.redact.word(s.Message())}
	}
	encode := e.single
	m := methods[a.call]
	if m.list {
		encode = e.list
	}
	if err := encode(&l, m, a); err != nil {
		return fmt.Errorf("%s: %w", a.call, err)
	}
	if !e.started {
		e.started = true
		e.header.Began = began.Round(0)
		if err := e.lines.Encode(e.header); err != nil {
			return err
		}
	}
	return e.lines.Encode(l)
}

// end writes the last line, unless there was no call.
func (e *encoder) end(length time.Duration) error {
	if !e.started {
		return nil
	}
	return e.lines.Encode(line{At: offset(length), End: true})
}

// single encodes an answer that is one message.
func (e *encoder) single(l *line, m method, a *answer) error {
	var id string
	last := e.last[m.kind].statuses
	if m.status {
		id = field(a.request.(proto.Message), messages[m.kind].id).String()
		l.ID = e.redact.id(id)
	}
	if a.err != nil || len(a.messages) == 0 {
		delete(last, id)
		return nil
	}
	message := empty(m.reply)
	if err := proto.Unmarshal(a.messages[0], message); err != nil {
		return err
	}
	e.redact.message(message)
	if version, ok := message.(*cri.VersionResponse); ok && !e.started {
		e.header.RuntimeName, e.header.RuntimeVersion = version.GetRuntimeName(), version.GetRuntimeVersion()
	}
	if m.status {
		before, ok := last[id]
		last[id] = e.digest(message)
		if ok && before == last[id] {
			l.Same = true
			return nil
		}
	}
	l.Answer = raw(message)
	return nil
}

func (e *encoder) list(l *line, m method, a *answer) error {
	filter, last := filterOf(a.request), &e.last[m.kind]
	if filter != nil {
		shown := proto.Clone(filter)
		e.redact.message(shown)
		l.Filter = raw(shown)
	}
	if a.err != nil || a.pending {
		last.listed = last.listed && filter != nil
		return nil
	}
	var items []proto.Message
	ids := make(map[string]bool) // as they were
	for _, message := range a.messages {
		list := empty(m.reply)
		if err := proto.Unmarshal(message, list); err != nil {
			return err
		}
		all := itemsOf(list)
		for i := range all.Len() {
			items = append(items, all.Get(i).Message().Interface())
			ids[field(items[len(items)-1], "id").String()] = true
		}
		e.redact.message(list)
	}
	maps.DeleteFunc(last.statuses, func(id string, _ uint64) bool { return !ids[id] })
	if filter != nil {
		last = &lastAnswers{} // nothing to refer to
	}
	e.change(l, last, items)
	return nil
}

// change encodes a list as the difference to the last one.
func (e *encoder) change(l *line, last *lastAnswers, items []proto.Message) {
	place := make(map[uint64]int, len(last.items))
	for i, digest := range last.items {
		place[digest] = i
	}
	l.List = []part{}
	now := make([]uint64, len(items))
	for i, item := range items {
		now[i] = e.digest(item)
		if at, ok := place[now[i]]; ok {
			l.List = keep(l.List, at)
		} else {
			l.List = append(l.List, part{Put: raw(item)})
		}
	}
	whole := len(l.List) == 0 || len(l.List) == 1 && l.List[0].Keep != nil && l.List[0].Keep[0] == 0
	if last.listed && whole && len(now) == len(last.items) {
		l.Same, l.List = true, nil
	}
	last.items, last.listed = now, true
}

// keep adds an item of the last list, to the range before it if that ends there.
func keep(parts []part, at int) []part {
	if n := len(parts); n > 0 && parts[n-1].Keep != nil {
		if last := parts[n-1].Keep; last[0]+last[1] == at {
			last[1]++
			return parts
		}
	}
	return append(parts, part{Keep: &[2]int{at, 1}})
}

// digest is the same for equal messages, whatever the order of their maps.
func (e *encoder) digest(m proto.Message) uint64 {
	bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // never fails: it was decoded before
	return maphash.Bytes(e.seed, bytes)
}

// raw returns a message, which was decoded before, as protojson.
func raw(m proto.Message) json.RawMessage {
	text, _ := protojson.Marshal(m) // never fails
	return text
}

// File is an [Output] in a file.
type File struct {
	Output // the last writer: gzip or the buffer
	file   *os.File
	buffer *bufio.Writer
}

// Create creates a file that only its owner can read, compressed if path ends in
// .gz. It returns an error if the file exists: a recording cannot be repeated.
func Create(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, buffer: bufio.NewWriter(file)}
	if f.Output = f.buffer; strings.HasSuffix(path, ".gz") {
		f.Output = gzip.NewWriter(f.buffer)
	}
	return f, nil
}

// Flush passes everything written to the system, so that it survives the process.
func (f *File) Flush() error { return errors.Join(f.Output.Flush(), f.buffer.Flush()) }

// Close completes the file and returns its size in bytes.
func (f *File) Close() (size int64, err error) {
	if zipped, ok := f.Output.(io.Closer); ok {
		err = zipped.Close()
	}
	err = errors.Join(err, f.buffer.Flush())
	info, statErr := f.file.Stat()
	if statErr == nil {
		size = info.Size()
	}
	return size, errors.Join(err, statErr, f.file.Close())
}
