package doctor

import (
	"context"
	"fmt"
	"io/fs"

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
	answer, _ := runtimeapi.NewImageServiceClient(e.client.Conn()).ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	for _, f := range answer.GetImageFilesystems() {
		path := f.GetFsId().GetMountpoint()
		if used, inodes, err := e.Usage(path); path != "" && err == nil {
			n := &e.report.Node
			n.ImageFilesystem, n.UsedPercent, n.InodesPercent = path, &used, &inodes
		}
	}
}

// Usage returns how many percent of the bytes and inodes of the filesystem of path are in use, for
// [Options]. Without inodes, inodes is 0. The error comes from statfs.
func Usage(path string) (used, inodes float64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", path, err)
	}
	percent := func(total, free float64) float64 {
		if total == 0 {
			return 0
		}
		return 100 * (total - free) / total
	}
	// The types of the fields differ between systems.
	return percent(float64(st.Blocks), float64(st.Bavail)), percent(float64(st.Files), float64(st.Ffree)), nil
}
