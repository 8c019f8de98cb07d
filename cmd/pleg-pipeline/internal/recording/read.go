package recording

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Errors that [Read] wraps.
var (
	// ErrEmpty is a file with nothing in it, or that is cut off in its first line.
	ErrEmpty = errors.New("the recording is empty")
	// ErrForeign is a file that is something else.
	ErrForeign = errors.New("it is not a recording of pleg-pipeline")
	// ErrNewer is a recording in a format of a newer program.
	ErrNewer = errors.New("the recording was made by a newer program")
	// ErrCorrupt is a recording that was damaged, not only cut off.
	ErrCorrupt = errors.New("the recording is damaged")
)

// maxLine bounds the memory that a damaged file can take: a list of 16 MiB is
// some 50 MiB of JSON.
const maxLine = 256 << 20

// Recording is what a runtime answered, in memory. It is never changed.
type Recording struct {
	Header Header
	// Length is from the first call to the end.
	Length time.Duration
	// Cut says how the end is missing, or is empty: the recorder was killed, or
	// the file is not whole.
	Cut string

	steps    []*step // in the order of time
	rounds   []round
	statuses map[statusKey][]*statusAnswer
	sessions []*session
	version  time.Duration // how long it took
	streams  bool          // the runtime could stream lists
	final    [kinds]map[string]bool
}

// statusKey is whose status.
type statusKey struct {
	kind kind
	id   string
}

// Read reads a whole recording, compressed or not. What is cut off at the end is
// left out, and told by Recording.Cut. The error wraps one of [ErrEmpty],
// [ErrForeign], [ErrNewer] and [ErrCorrupt], or comes from r.
func Read(r io.Reader) (*Recording, error) {
	reader, err := uncompressed(r)
	if err != nil {
		return nil, err
	}
	line, err := readLine(reader)
	if err != nil && !errors.Is(err, errCut) {
		return nil, err
	}
	header, err := parseHeader(line, err == nil)
	if err != nil {
		return nil, err
	}
	l := newLoader(header)
	whole := false
	for number := 2; ; number++ {
		line, err := readLine(reader)
		switch {
		case errors.Is(err, errCut):
			if !whole {
				l.recording.Cut = "it has no end: the recorder was killed, or the file is not whole"
			}
			if len(line) > 0 {
				l.recording.Cut = fmt.Sprintf("it is cut off in line %d, which is left out", number)
			}
			return l.finish(), nil
		case err != nil:
			return nil, err
		case whole:
			return nil, fmt.Errorf("%w: line %d is behind the end", ErrCorrupt, number)
		}
		if whole, err = l.line(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrCorrupt, number, err)
		}
	}
}

// errCut is the end of a file; what was read of a line is returned beside it.
var errCut = errors.New("end of the recording")

// readLine returns a line without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > maxLine:
			return nil, fmt.Errorf("%w: a line is longer than %d bytes", ErrCorrupt, maxLine)
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return line, errCut
		case isDamaged(err):
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		default:
			return nil, err
		}
	}
}

// parseHeader reads the first line; whole is false if its end is missing.
func parseHeader(line []byte, whole bool) (Header, error) {
	var h Header
	cut := []byte(`{"format":"` + formatName + `"`)
	if !whole && (bytes.HasPrefix(cut, line) || bytes.HasPrefix(line, cut)) {
		return h, ErrEmpty
	}
	var first struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	switch err := json.Unmarshal(line, &first); {
	case err != nil || first.Format != formatName:
		return h, ErrForeign
	case first.Version > formatVersion:
		return h, fmt.Errorf("%w: it has format %d, this one reads up to %d", ErrNewer, first.Version, formatVersion)
	case first.Version < 1:
		return h, fmt.Errorf("%w: format %d", ErrCorrupt, first.Version)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("%w: line 1: %w", ErrCorrupt, err)
	}
	return h, nil
}

// finish puts what was read in order.
func (l *loader) finish() *Recording {
	r := l.recording
	r.steps = slices.DeleteFunc(r.steps, func(s *step) bool { return s.dropped })
	slices.SortStableFunc(r.steps, func(a, b *step) int { return cmp.Compare(a.at, b.at) })
	for key, known := range r.statuses {
		known = slices.DeleteFunc(known, func(s *statusAnswer) bool { return s.dropped })
		slices.SortStableFunc(known, func(a, b *statusAnswer) int { return cmp.Compare(a.at, b.at) })
		r.statuses[key] = known
	}
	r.rounds = newRounds(r.steps)
	w := newWorld(r.Header.Began)
	for _, s := range r.steps {
		w.apply(s)
	}
	for k := range r.final {
		r.final[k] = make(map[string]bool)
		for _, e := range w.view[k] {
			r.final[k][e.id] = true
		}
	}
	return r
}
