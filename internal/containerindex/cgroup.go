package containerindex

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Host finds cgroups. The zero value is the machine of this process.
type Host struct {
	// Proc and Cgroup are the mount points of proc and of the cgroups. If empty, /proc and
	// /sys/fs/cgroup.
	Proc, Cgroup string
}

func (h Host) proc() string   { return cmp.Or(h.Proc, "/proc") }
func (h Host) cgroup() string { return cmp.Or(h.Cgroup, "/sys/fs/cgroup") }

// watchedBy returns the id of the sandbox or container that a shim or conmon watches; "" for any
// other process. The cgroup of a shim or conmon is that of its pod, or of no pod.
func (h Host) watchedBy(pid int) pleg.ContainerID {
	proc := os.DirFS(h.proc())
	p, _ := process.Read(proc, pid)
	id, _ := process.Watches(proc, p)
	return id
}

// pathOfProcess returns the cgroup of a process. With cgroup v1 a process has a cgroup in each
// hierarchy: the first that names a container counts.
func (h Host) pathOfProcess(pid int) (path string, err error) {
	file, err := os.Open(filepath.Join(h.proc(), strconv.Itoa(pid), "cgroup"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: the process does not exist", lookup.ErrNoContainer)
	case err != nil:
		return "", fmt.Errorf("find the cgroup: %w", err)
	}
	defer func() { _ = file.Close() }()
	return pathIn(file)
}

// pathIn returns the path in the file cgroup of a process.
func pathIn(file io.Reader) (string, error) {
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		// hierarchy-ID:controllers:path, see cgroups(7)
		if parts := strings.SplitN(lines.Text(), ":", 3); len(parts) == 3 && len(idsIn(parts[2])) > 0 {
			return parts[2], nil
		}
	}
	if err := lines.Err(); err != nil && !isGone(err) {
		return "", fmt.Errorf("find the cgroup: %w", err)
	}
	return "", lookup.ErrNoContainer
}
