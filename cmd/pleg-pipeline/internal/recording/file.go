package recording

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// File is an [Output] in a file.
type File struct {
	file   *os.File
	buffer *bufio.Writer
	gzip   *gzip.Writer // nil for plain text
	io.Writer
}

// Create creates a file that only its owner can read, compressed if path ends in
// .gz. It returns an error if the file exists: a recording cannot be repeated.
func Create(path string) (*File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	f := &File{file: file, buffer: bufio.NewWriter(file)}
	f.Writer = f.buffer
	if strings.HasSuffix(path, ".gz") {
		f.gzip = gzip.NewWriter(f.buffer)
		f.Writer = f.gzip
	}
	return f, nil
}

// Flush passes everything written to the system, so that it survives the process.
func (f *File) Flush() error {
	if f.gzip != nil {
		if err := f.gzip.Flush(); err != nil {
			return err
		}
	}
	return f.buffer.Flush()
}

// Close completes the file and returns its size in bytes.
func (f *File) Close() (size int64, err error) {
	if f.gzip != nil {
		err = f.gzip.Close()
	}
	err = errors.Join(err, f.buffer.Flush())
	info, statErr := f.file.Stat()
	if statErr == nil {
		size = info.Size()
	}
	return size, errors.Join(err, statErr, f.file.Close())
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
