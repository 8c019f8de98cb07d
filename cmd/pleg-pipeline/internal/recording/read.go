package recording

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	// ErrTooLarge is a recording beyond a limit of this program.
	ErrTooLarge = errors.New("the recording is too large")
)

// maxLine is the greatest length of a line: a list of 16 MiB is some 50 MiB of JSON.
const maxLine = 64 << 20

// Recording is the answers of a runtime. It does not change.
type Recording struct {
	Header Header
	// Length is from the first call to the end.
	Length time.Duration
	// Cut says what is missing at the end; empty if nothing is.
	Cut string

	steps    []*step // lists and events in the order of their times
	rounds   []round
	statuses map[statusKey][]*step // in the order of their times
	sessions []*session
	version  time.Duration            // how long the call took
	streams  bool                     // the runtime could stream lists
	final    [kinds]map[string]*entry // what there was at the end, by id
}

type statusKey struct {
	kind kind
	id   string
}

// step is one recorded answer: of a list, of a status call, or an event.
type step struct {
	at, took time.Duration
	err      error // a gRPC status
	pending  bool  // it has no answer
	dropped  bool  // its answer is in a later line
	kind     kind
	filter   proto.Message // of a list that is not of everything
	key      string        // identifies kind and filter; empty without a filter
	same     bool          // the list equals the last one
	items    []*item       // of the list
	event    *cri.ContainerEventResponse
	status   proto.Message // the answer of the status call
	carried  bool          // the status came with an event or with that of its sandbox
}

// session is one event stream.
type session struct {
	opened time.Duration
	events []*step
	end    *step
}

// Open reads the recording in a file. It returns soon after ctx has ended.
func Open(ctx context.Context, path string) (*Recording, error) {
	// Without O_NONBLOCK, opening and reading a pipe could not be ended.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	defer context.AfterFunc(ctx, func() { _ = file.Close() })()
	recording, err := Read(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	return recording, nil
}

// Read reads a whole recording, compressed or not. It leaves out a truncated last
// line, and says so in Recording.Cut. The error wraps [ErrEmpty], [ErrForeign],
// [ErrNewer], [ErrCorrupt] or [ErrTooLarge], is the cause of ctx, or comes from r.
func Read(ctx context.Context, r io.Reader) (*Recording, error) {
	recording, err := read(ctx, r)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return recording, err
}

func read(ctx context.Context, r io.Reader) (*Recording, error) {
	reader, err := uncompressed(r)
	if err != nil {
		return nil, err
	}
	limits := newBudget(ctx)
	lines := bufio.NewScanner(&limitedReader{reader, limits})
	lines.Buffer(nil, maxLine)
	lines.Split(splitAfterNewline)
	lines.Scan()
	if err := readError(lines.Err()); err != nil {
		return nil, err
	}
	header, err := parseHeader(lines.Bytes())
	if err != nil {
		return nil, err
	}
	l := newLoader(header, limits)
	for number := 2; lines.Scan(); number++ {
		switch text, whole := bytes.CutSuffix(lines.Bytes(), []byte("\n")); {
		case !whole:
			l.Cut = fmt.Sprintf("line %d is cut off and is left out", number)
		case l.ended:
			return nil, fmt.Errorf("%w: line %d is after the end", ErrCorrupt, number)
		default:
			switch err := l.line(text); {
			case limits.err() != nil:
				return nil, limits.err()
			case err != nil:
				return nil, fmt.Errorf("%w: line %d: %w", ErrCorrupt, number, err)
			}
		}
	}
	if err := readError(lines.Err()); err != nil {
		return nil, err
	}
	return l.finish(), limits.err()
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

// readError returns an error of the reader, unless it means a truncated file.
func readError(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil
	case errors.Is(err, bufio.ErrTooLong), errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader),
		errors.As(err, new(flate.CorruptInputError)):
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// parseHeader reads the first line.
func parseHeader(text []byte) (h Header, err error) {
	start := []byte(`{"format":"` + formatName + `"`)
	if !bytes.HasSuffix(text, []byte("\n")) && (bytes.HasPrefix(start, text) || bytes.HasPrefix(text, start)) {
		return h, ErrEmpty
	}
	var first struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	switch err := json.Unmarshal(text, &first); {
	case err != nil || first.Format != formatName:
		return h, ErrForeign
	case first.Version > formatVersion:
		return h, fmt.Errorf("%w: it has format %d, this one reads up to %d", ErrNewer, first.Version, formatVersion)
	case first.Version < 1:
		return h, fmt.Errorf("%w: format %d", ErrCorrupt, first.Version)
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, fmt.Errorf("%w: line 1: %w", ErrCorrupt, err)
	}
	return h, nil
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
