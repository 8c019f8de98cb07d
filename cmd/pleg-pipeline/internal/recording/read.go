package recording

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var errEmpty = errors.New("the recording is empty")

// limits bound a recording, in bytes: its text, one line, and the memory that it takes: a small compressed file can
// become very large. Only tests change them.
var limits = struct{ text, line, memory int }{256 << 20, 64 << 20, 512 << 20}

// The memory that a recording takes beside its text, in bytes. A message is a struct with a field for everything that
// it may contain. An item takes a place in a list. A status that comes with its sandbox is an answer of its own.
const (
	messageCost = 256
	fieldCost   = 64
	itemCost    = 24
	carriedCost = 512
)

// Recording is the answers of a runtime. It does not change.
type Recording struct {
	Header Header
	// Runtime is the answer to the version call; nil if the client did not ask.
	Runtime *cri.VersionResponse
	// Length is from the first call to the end.
	Length time.Duration
	// Cut describes the missing end; empty if nothing is missing.
	Cut string

	// All are in the order of their times.
	rounds  []round
	answers map[string][]*call // by the result of question; full lists are also in rounds
	singles [2][]*call         // lists of single pods, by kind
	nodes   []nodeState
}

// Open reads the recording in a file. It returns soon after ctx has ended.
func Open(ctx context.Context, path string) (*Recording, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer func() { _ = file.Close() }()
	recording, err := Read(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", path, err)
	}
	return recording, nil
}

// Read reads a whole recording, compressed or not. It leaves out a truncated last
// line, and says so in Recording.Cut.
func Read(ctx context.Context, r io.Reader) (*Recording, error) {
	content, err := uncompressed(r)
	if err != nil {
		return nil, err
	}
	limited := &io.LimitedReader{R: content, N: int64(limits.text) + 1}
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
			return nil, fmt.Errorf("the recording is too large: the limit is %d bytes", limits.text)
		case err != nil:
			return nil, err
		case len(text) == 0:
			return l.finish(), nil
		case text[len(text)-1] != '\n':
			l.Cut = fmt.Sprintf("line %d is cut off and is left out", number)
			return l.finish(), nil
		}
		if err := l.addLine(text); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return nil, context.Cause(ctx)
}

// readLine returns a line with its line break, the rest of a truncated line, or nothing at the end
// of the file.
func readLine(r *bufio.Reader) (text []byte, err error) {
	for more := true; more; {
		var part []byte
		part, err = r.ReadSlice('\n')
		if text = append(text, part...); len(text) > limits.line {
			return nil, fmt.Errorf("a line is too large: the limit is %d bytes", limits.line)
		}
		more = errors.Is(err, bufio.ErrBufferFull)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return text, nil
	}
	return text, err
}

func parseHeader(text []byte) (h Header, err error) {
	if len(text) == 0 {
		return h, errEmpty
	}
	err = json.Unmarshal(text, &h)
	switch {
	case h.Format != formatName:
		return h, errors.New("it is not a recording of pleg-pipeline")
	case h.Version != formatVersion:
		return h, fmt.Errorf("it was made by another version of pleg-pipeline: it has format %d, this program reads format %d", h.Version, formatVersion)
	case err != nil:
		return h, fmt.Errorf("line 1: %w", err)
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
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errEmpty
	}
	return unzipped, err
}
