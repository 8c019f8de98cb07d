package replay

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording/format"
)

// Errors that [Read] wraps.
var (
	// ErrEmpty is a file without a whole first line.
	ErrEmpty = errors.New("the recording is empty")
	// ErrForeign is a file that is something else.
	ErrForeign = errors.New("it is not a recording of pleg-pipeline")
	// ErrNewer is a recording in the format of a newer program.
	ErrNewer = errors.New("the recording was made by a newer program")
	// ErrCorrupt is a recording that is damaged, not only truncated.
	ErrCorrupt = errors.New("the recording is damaged")
)

// maxLine bounds the memory that a damaged file can take: a list of 16 MiB is
// some 50 MiB of JSON.
const maxLine = 256 << 20

// Recording is the answers of a runtime. It does not change.
type Recording struct {
	Header format.Header
	// Length is from the first call to the end.
	Length time.Duration
	// Cut says what is missing at the end; empty if nothing is.
	Cut string

	steps    []*step // lists and events in the order of their times
	rounds   []round
	statuses map[statusKey][]*step // in the order of their times
	sessions []*session
	version  time.Duration // how long the call took
	streams  bool          // the runtime could stream lists
	final    [format.Kinds]map[string]bool
}

type statusKey struct {
	kind format.Kind
	id   string
}

// step is one recorded answer: of a list, of a status call, or an event.
type step struct {
	at, took time.Duration
	err      error // a gRPC status
	pending  bool  // it has no answer
	dropped  bool  // its answer is in a later line
	kind     format.Kind
	filter   proto.Message // of a list that is not of everything
	key      string        // identifies kind and filter; empty without a filter
	same     bool          // the list equals the last one
	parts    []listPart
	event    *cri.ContainerEventResponse
	status   proto.Message // the answer of the status call
	byEvent  bool          // the status came with an event
}

func (s *step) isFullList() bool { return s.event == nil && s.filter == nil }

// listPart is a range of the last list, or one item if that is not nil.
type listPart struct {
	first, number int
	item          *item
}

// session is one event stream.
type session struct {
	opened time.Duration
	events []*step
	end    *step // nil if the stream was open when the recording ended
}

// Read reads a whole recording, compressed or not. It leaves out a truncated last
// line, and says so in Recording.Cut. The error wraps [ErrEmpty], [ErrForeign],
// [ErrNewer] or [ErrCorrupt], or comes from r.
func Read(r io.Reader) (*Recording, error) {
	reader, err := uncompressed(r)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, maxLine)
	lines.Split(splitAfterNewline)
	lines.Scan()
	if err := readError(lines); err != nil {
		return nil, err
	}
	header, err := parseHeader(lines.Bytes())
	if err != nil {
		return nil, err
	}
	l := newLoader(header)
	l.recording.Cut = "it has no end: the recorder was killed, or the file is not complete"
	for number := 2; lines.Scan(); number++ {
		switch line, whole := bytes.CutSuffix(lines.Bytes(), []byte("\n")); {
		case !whole:
			l.recording.Cut = fmt.Sprintf("line %d is cut off and is left out", number)
		case l.ended:
			return nil, fmt.Errorf("%w: line %d is after the end", ErrCorrupt, number)
		default:
			if err := l.line(line); err != nil {
				return nil, fmt.Errorf("%w: line %d: %w", ErrCorrupt, number, err)
			}
		}
	}
	return l.finish(), readError(lines)
}

func splitAfterNewline(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// readError returns the error of the reader, unless it means a truncated file.
func readError(lines *bufio.Scanner) error {
	switch err := lines.Err(); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	case isDamaged(err):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	default:
		return err
	}
}

// parseHeader reads the first line.
func parseHeader(line []byte) (h format.Header, err error) {
	start := []byte(`{"format":"` + format.Name + `"`)
	if !bytes.HasSuffix(line, []byte("\n")) && (bytes.HasPrefix(start, line) || bytes.HasPrefix(line, start)) {
		return h, ErrEmpty
	}
	var first struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	switch err := json.Unmarshal(line, &first); {
	case err != nil || first.Format != format.Name:
		return h, ErrForeign
	case first.Version > format.Version:
		return h, fmt.Errorf("%w: it has format %d, this one reads up to %d", ErrNewer, first.Version, format.Version)
	case first.Version < 1:
		return h, fmt.Errorf("%w: format %d", ErrCorrupt, first.Version)
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, fmt.Errorf("%w: line 1: %w", ErrCorrupt, err)
	}
	return h, nil
}

// Open reads the recording in a file.
func Open(path string) (*Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	recording, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	return recording, nil
}

// uncompressed returns the content of r if that is compressed, or else r.
func uncompressed(r io.Reader) (io.Reader, error) {
	reader := bufio.NewReader(r)
	if magic, _ := reader.Peek(2); string(magic) != "\x1f\x8b" {
		return reader, nil
	}
	unzipped, err := gzip.NewReader(reader)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, ErrEmpty
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return unzipped, nil
}

func isDamaged(err error) bool {
	return errors.Is(err, bufio.ErrTooLong) || errors.Is(err, gzip.ErrChecksum) || errors.Is(err, gzip.ErrHeader) ||
		errors.As(err, new(flate.CorruptInputError))
}
