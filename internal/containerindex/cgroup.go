package containerindex

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/lookup"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Host finds cgroups. The zero value is the machine of this process.
type Host struct {
	// Proc and Cgroup are where proc and the cgroups are mounted. If empty, /proc and
	// /sys/fs/cgroup.
	Proc, Cgroup string
}

func (h Host) proc() string   { return cmp.Or(h.Proc, "/proc") }
func (h Host) cgroup() string { return cmp.Or(h.Cgroup, "/sys/fs/cgroup") }

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

// pathOfContainer returns the cgroup whose directory is named after a container; empty if
// there is none, or none that this process may read.
func (h Host) pathOfContainer(ctx context.Context, x *Index, id pleg.ContainerID) (path string, err error) {
	for _, root := range h.hierarchies() {
		path, err = x.search(ctx, root, func(dir fs.DirEntry) bool { return idOf(dir.Name()) == id })
		if path != "" || err != nil {
			break
		}
	}
	return path, err
}

// search returns the first cgroup of a hierarchy that is wanted, or "". One search runs at a
// time, and ends with ctx: a node may have thousands of cgroups.
func (x *Index) search(ctx context.Context, root string, wanted func(fs.DirEntry) bool) (path string, err error) {
	select {
	case x.searching <- struct{}{}:
		defer func() { <-x.searching }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	err = filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && d.IsDir() && wanted(d): // cgroups come and go
			path = strings.TrimPrefix(dir, root)
			return fs.SkipAll
		}
		return nil
	})
	return path, err
}

// hierarchies are the mounted cgroup hierarchies: a single one with cgroup v2, several with v1.
func (h Host) hierarchies() []string {
	root := h.cgroup()
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		return []string{root}
	}
	mounted, _ := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	for i, procs := range mounted {
		mounted[i] = filepath.Dir(procs)
	}
	return mounted
}
