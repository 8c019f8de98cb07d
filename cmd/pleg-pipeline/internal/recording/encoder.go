package recording

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// encoder writes the lines. One goroutine uses it.
type encoder struct {
	lines   *json.Encoder
	header  Header
	started bool
	redact  *redactor // nil if texts stay
	seed    maphash.Seed
	last    [kinds][]uint64 // digests of the items of the last list; nil before the first
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
	return e
}

// write writes one answer, and the header before the first.
func (e *encoder) write(a *answer, began time.Time) error {
	l := line{At: offset(a.at), Took: offset(a.took), Method: a.method, Stream: a.stream, Pending: a.pending, Ended: a.ended}
	if a.request != nil && proto.Size(a.request) > 0 {
		l.Request = e.text(proto.Clone(a.request))
	}
	m := methods[a.method]
	var err error
	switch {
	case a.err != nil:
		s := status.Convert(a.err)
		l.Error = &failure{s.Code().String(), e.redact.word(s.Message())}
	case a.pending:
	case m.isList():
		err = e.list(&l, m, a)
	case len(a.messages) > 0:
		message := empty(m.reply)
		err = proto.Unmarshal(a.messages[0], message)
		l.Answer = e.text(message)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", a.method, err)
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

// writeEnd writes the last line, unless there was no call.
func (e *encoder) writeEnd(length time.Duration) error {
	if !e.started {
		return nil
	}
	return e.lines.Encode(line{At: offset(length), End: true})
}

// list encodes the items of a list. A list with a filter is whole.
func (e *encoder) list(l *line, m method, a *answer) error {
	var last []uint64
	if l.Request == nil {
		last = e.last[m.kind]
	}
	index := make(map[uint64]int, len(last))
	for i, digest := range last {
		index[digest] = i
	}
	digests := []uint64{}
	same := last != nil
	l.List = []json.RawMessage{}
	for _, message := range a.messages {
		list := empty(m.reply)
		if err := proto.Unmarshal(message, list); err != nil {
			return err
		}
		items := itemsOf(list)
		for i := range items.Len() {
			item := items.Get(i).Message().Interface()
			digest := e.digest(item)
			at, known := index[digest]
			same = same && known && at == len(digests)
			if digests = append(digests, digest); known {
				l.List = append(l.List, json.RawMessage(strconv.Itoa(at)))
			} else {
				l.List = append(l.List, e.text(item))
			}
		}
	}
	if same && len(digests) == len(last) {
		l.Same, l.List = true, nil
	}
	if l.Request == nil {
		e.last[m.kind] = digests
	}
	return nil
}

// digest is the same for equal messages, whatever the order of their maps.
func (e *encoder) digest(m proto.Message) uint64 {
	bytes, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m) // never fails: it was decoded before
	return maphash.Bytes(e.seed, bytes)
}

// text returns a message, which was decoded before, as protojson. It redacts the message
// in place.
func (e *encoder) text(m proto.Message) json.RawMessage {
	e.redact.message(m)
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
