package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readCgroups finds containers that the runtime calls running although their cgroup has
// no process. A runtime that lost the exit of a container reports it as running forever
// (containerd#12678), and no CRI call shows that.
func (e *examination) readCgroups(ctx context.Context, items []item) {
	if e.Cgroups == nil || slices.ContainsFunc(e.calls, func(c madeCall) bool { return c.ID != "" && c.hangs() }) {
		return
	}
	for _, c := range items {
		if !c.runs || c.Method != "ContainerStatus" || ctx.Err() != nil {
			continue
		}
		answer, _ := e.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID, Verbose: true})
		if answer.GetStatus().GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		if cgroup := cgroupPath(answer.GetInfo()); cgroup != "" && isEmpty(e.Cgroups, cgroup) {
			e.report.Empty = append(e.report.Empty, EmptyContainer{Pod: c.Pod, PodUID: c.PodUID, Container: c.Container, ID: c.ID, Cgroup: cgroup})
		}
	}
}

// cgroupPath returns the path of a container's cgroup below the root of the cgroups, from
// what containerd and CRI-O report if asked to be verbose; "" if it is not known.
func cgroupPath(info map[string]string) string {
	var verbose struct {
		RuntimeSpec struct {
			Linux struct {
				CgroupsPath string `json:"cgroupsPath"`
			} `json:"linux"`
		} `json:"runtimeSpec"`
	}
	if json.Unmarshal([]byte(info["info"]), &verbose) != nil {
		return ""
	}
	configured := verbose.RuntimeSpec.Linux.CgroupsPath
	slice, rest, systemd := strings.Cut(configured, ":")
	if !systemd {
		return strings.Trim(path.Clean("/"+configured), "/")
	}
	prefix, id, ok := strings.Cut(rest, ":")
	if !ok {
		return ""
	}
	return path.Join(slicePath(slice), prefix+"-"+id+".scope")
}

// slicePath returns the path of a systemd slice: "a-b.slice" is in "a.slice".
func slicePath(slice string) string {
	var folders []string
	name := strings.TrimSuffix(slice, ".slice")
	for i, r := range name {
		if r == '-' {
			folders = append(folders, name[:i]+".slice")
		}
	}
	return path.Join(append(folders, slice)...)
}

// isEmpty reports whether a cgroup of cgroup v2 exists and has no process. In v1 each
// controller has its own tree; that of pids counts.
func isEmpty(cgroups fs.FS, dir string) bool {
	events, err := fs.ReadFile(cgroups, path.Join(dir, "cgroup.events"))
	if err == nil {
		return slices.Contains(strings.Split(string(events), "\n"), "populated 0")
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	procs, err := fs.ReadFile(cgroups, path.Join("pids", dir, "cgroup.procs"))
	return err == nil && len(strings.TrimSpace(string(procs))) == 0
}

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
