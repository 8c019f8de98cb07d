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

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Errors that [Read] wraps.
var (
	// ErrEmpty is a file without a whole first line.
	ErrEmpty = errors.New("the recording is empty")
	// ErrForeign is a file that is something else.
	ErrForeign = errors.New("it is not a recording of pleg-pipeline")
	// ErrVersion is a recording in the format of an older or newer program.
	ErrVersion = errors.New("the recording was made by another version of pleg-pipeline")
	// ErrCorrupt is a recording that is damaged, not only truncated.
	ErrCorrupt = errors.New("the recording is damaged")
	// ErrTooLarge is a recording beyond a limit of this program.
	ErrTooLarge = errors.New("the recording is too large")
)

// limits are those of a whole recording: a small compressed file can stand for very
// much. A field takes some 60 bytes of memory, a message counts as three; an item of a
// list that was in the one before takes 8. Only tests change them.
var limits = struct{ bytes, fields, items int }{256 << 20, 6 << 20, 16 << 20}

// Recording is the answers of a runtime. It does not change.
type Recording struct {
	Header Header
	// Runtime is the answer to the version call; nil if the client did not ask.
	Runtime *cri.VersionResponse
	// Length is from the first call to the end.
	Length time.Duration
	// Cut says what is missing at the end; empty if nothing is.
	Cut string

	// All are in the order of their times.
	rounds  []round
	answers map[string][]*call // by question; those to full lists are in rounds too
	stream  []*call            // openings, events and ends of event streams
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
// [ErrVersion], [ErrCorrupt] or [ErrTooLarge], is the cause of ctx, or comes from r.
func Read(ctx context.Context, r io.Reader) (*Recording, error) {
	recording, err := read(ctx, r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return recording, err
}

func read(ctx context.Context, r io.Reader) (*Recording, error) {
	content, err := uncompressed(r)
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: content, N: int64(limits.bytes) + 1}
	lines := bufio.NewReader(limited)
	text, err := readLine(lines)
	if err != nil {
		return nil, err
	}
	header, err := parseHeader(text)
	if err != nil {
		return nil, err
	}
	l := newLoader(header)
	for number := 2; ctx.Err() == nil; number++ {
		text, err := readLine(lines)
		switch {
		case limited.N <= 0:
			return nil, fmt.Errorf("%w: the limit is %d bytes", ErrTooLarge, limits.bytes)
		case err != nil:
			return nil, err
		case len(text) == 0:
			return l.finish(), nil
		case l.ended:
			return nil, fmt.Errorf("%w: line %d is after the end", ErrCorrupt, number)
		case text[len(text)-1] != '\n':
			l.Cut = fmt.Sprintf("line %d is cut off and is left out", number)
			return l.finish(), nil
		}
		if err := l.addLine(text); errors.Is(err, ErrTooLarge) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrCorrupt, number, err)
		}
	}
	return nil, context.Cause(ctx)
}

// readLine returns a line with its end, what there is of a truncated one, or nothing at
// the end of the file.
func readLine(r *bufio.Reader) ([]byte, error) {
	text, err := r.ReadBytes('\n')
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return text, nil
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, new(flate.CorruptInputError)):
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return text, err
}

// parseHeader reads the first line.
func parseHeader(text []byte) (h Header, err error) {
	start := []byte(`{"format":"` + formatName + `"`)
	if !bytes.HasSuffix(text, []byte("\n")) && (bytes.HasPrefix(start, text) || bytes.HasPrefix(text, start)) {
		return h, ErrEmpty
	}
	err = json.Unmarshal(text, &h)
	switch {
	case h.Format != formatName:
		return h, ErrForeign
	case h.Version != 0 && h.Version != formatVersion:
		return h, fmt.Errorf("%w: it has format %d, this program reads format %d", ErrVersion, h.Version, formatVersion)
	case err != nil:
		return h, fmt.Errorf("%w: line 1: %w", ErrCorrupt, err)
	case h.Version == 0:
		return h, fmt.Errorf("%w: line 1 has no version", ErrCorrupt)
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
