package recording

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strings"
)

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
