package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readPressure reads the kernel's pressure figures, if it has them.
func (e *examination) readPressure() {
	n := &e.report.Node
	n.IOPressure = pressure(e.Pressure, "io")
	n.CPUPressure = pressure(e.Pressure, "cpu")
	n.MemoryPressure = pressure(e.Pressure, "memory")
}

// pressure returns avg10 of the line "some" of a file such as
// "some avg10=1.23 avg60=0.50 avg300=0.10 total=123".
func pressure(files fs.FS, name string) *float64 {
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "some" {
			continue
		}
		if value, err := strconv.ParseFloat(strings.TrimPrefix(fields[1], "avg10="), 64); err == nil {
			return &value
		}
	}
	return nil
}

// imageFilesystem finds the filesystem of the images and its usage. The runtime reads
// the disk for the answer, so a slow disk shows in the duration of the call.
func (e *examination) imageFilesystem(ctx context.Context) {
	_ = e.call(ctx, "ImageFsInfo", func(ctx context.Context) error {
		answer, err := e.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
		if err != nil {
			return err
		}
		for _, f := range answer.GetImageFilesystems() {
			path := f.GetFsId().GetMountpoint()
			used, inodes, err := e.Usage(path)
			if path == "" || err != nil {
				continue
			}
			n := &e.report.Node
			n.ImageFilesystem, n.UsedPercent, n.InodesPercent = path, &used, &inodes
		}
		return nil
	})
}

// Usage returns how many percent of the bytes and inodes of the filesystem of path are
// in use, for [Options]. Without inodes, inodes is 0. The error is that of statfs.
func Usage(path string) (used, inodes float64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	percent := func(total, free uint64) float64 {
		if total == 0 {
			return 0
		}
		return 100 * float64(total-free) / float64(total)
	}
	return percent(st.Blocks, st.Bavail), percent(st.Files, st.Ffree), nil
}
