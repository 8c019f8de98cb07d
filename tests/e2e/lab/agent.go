//go:build linux

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Cell makes a cgroup of the lab's own with a limit on memory, in bytes, where the
// kernel kills what takes more, and returns the file by which a process enters it:
// it writes its process id. [Lab.Stop] kills what is in it.
func (l *Lab) Cell(name string, limit int64) (procs string, err error) {
	dir, file := filepath.Join("/sys/fs/cgroup/memory", l.place.name(), name), "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // cgroup v2
		dir, file = filepath.Join("/sys/fs/cgroup", l.place.name(), name), "memory.max"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make cell %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0o600); err != nil {
		return "", fmt.Errorf("limit cell %s: %w", name, err)
	}
	return filepath.Join(dir, "cgroup.procs"), nil
}
