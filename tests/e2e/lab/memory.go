//go:build linux

package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// LimitMemory makes a cgroup with a memory limit, in bytes. The kernel kills a
// process in it that needs more. A process joins the cgroup if it writes its
// process id to the file procs. [Lab.Stop] kills the processes of the cgroup.
func (l *Lab) LimitMemory(name string, limit int64) (procs string, err error) {
	dir, file := filepath.Join("/sys/fs/cgroup/memory", l.place.name(), name), "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // cgroup v2
		dir, file = filepath.Join("/sys/fs/cgroup", l.place.name(), name), "memory.max"
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make memory cgroup %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.FormatInt(limit, 10)), 0o600); err != nil {
		return "", fmt.Errorf("limit memory of cgroup %s: %w", name, err)
	}
	return filepath.Join(dir, "cgroup.procs"), nil
}
