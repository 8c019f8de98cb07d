package doctor

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/host"
)

// readPressure reads the kernel's pressure figures, if it has them.
func (e *examination) readPressure() {
	n := &e.report.Node
	n.IOPressure = pressure(e.Pressure, "io")
	n.CPUPressure = pressure(e.Pressure, "cpu")
	n.MemoryPressure = pressure(e.Pressure, "memory")
}

// pressure returns avg10 of the first line of a file such as
// "some avg10=1.23 avg60=0.50 avg300=0.10 total=123".
func pressure(files fs.FS, name string) *float64 {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil
	}
	var value float64
	if _, err := fmt.Sscanf(string(text), "some avg10=%f ", &value); err != nil {
		return nil
	}
	return &value
}

// imageFilesystem finds the filesystem of the images and its usage. The runtime reads
// the disk for the answer, so a slow disk shows in the duration of the call.
func (e *examination) imageFilesystem(ctx context.Context) {
	path := host.Images(ctx, e.client.Conn())
	if used, inodes, err := e.Usage(path); path != "" && err == nil {
		n := &e.report.Node
		n.ImageFilesystem, n.UsedPercent, n.InodesPercent = path, &used, &inodes
		e.disk = host.FullDisk(nil, path, used, inodes, e.report.At)
	}
}

// findUnread finds clients of the runtime that do not read.
func (e *examination) findUnread(ctx context.Context) {
	if e.Sockets != nil {
		e.unread = host.FindUnread(ctx, host.Options{Endpoint: e.Endpoint, Proc: e.Proc, Sockets: e.Sockets})
	}
}
