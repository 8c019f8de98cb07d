//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Freeze stops containerd with SIGSTOP and returns once it has stopped. Every CRI
// call hangs until [Lab.Thaw]. Pods keep running.
func (l *Lab) Freeze(ctx context.Context) error {
	if err := l.daemon.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(ctx, "the stop of containerd", func() (bool, error) { return stopped(l.daemon.cmd.Process.Pid) })
}

// Thaw continues a containerd that [Lab.Freeze] stopped.
func (l *Lab) Thaw() error { return l.daemon.signal(syscall.SIGCONT) }

// Crash kills containerd and returns when it is dead. Pods keep running. Only
// [Lab.Revive], [Lab.KillProcess] and [Lab.Stop] may follow.
func (l *Lab) Crash() { l.daemon.kill() }

// Terminate is [Lab.Crash] with SIGTERM.
func (l *Lab) Terminate(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	l.daemon.terminate(ctx)
}

// Revive starts containerd again after [Lab.Crash] or [Lab.Terminate] and
// returns once it answers.
func (l *Lab) Revive(ctx context.Context) error {
	if l.daemon.alive() {
		return errors.New("revive containerd: it is running")
	}
	l.revived.Store(time.Now().UnixNano())
	d, err := startDaemon(l.binaries, l.place)
	if err != nil {
		return err
	}
	l.daemon = d
	return l.awaitReady(ctx)
}

// orphan matches the error of a snapshot whose folder exists already.
var orphan = regexp.MustCompile(`rename \S+/snapshots/new-\d+ (\S+/snapshots/\d+): file exists`)

// removeOrphan removes the folder that made the creation of a container fail, and
// reports whether to try again. If containerd is killed after it has renamed the
// folder of a snapshot and before it has committed to its database, it assigns
// the same number again after a restart, and always fails.
func (l *Lab) removeOrphan(err error) bool {
	found := orphan.FindStringSubmatch(err.Error())
	if found == nil {
		return false
	}
	info, err := os.Stat(found[1])
	if err == nil && info.ModTime().UnixNano() < l.revived.Load() {
		err = os.RemoveAll(found[1])
	}
	return err == nil || errors.Is(err, os.ErrNotExist)
}

// BreakNetwork makes the creation and removal of pods with their own address fail
// until [Lab.RepairNetwork]. containerd 1.6 then lists a sandbox that is not ready,
// whose only step is Died; containerd 2 does not list it.
func (l *Lab) BreakNetwork(ctx context.Context) error {
	if err := writePlugin(l.place, map[string]any{"type": brokenPlugin}); err != nil {
		return err
	}
	return l.awaitNetwork(ctx, brokenPlugin)
}

// RepairNetwork undoes [Lab.BreakNetwork].
func (l *Lab) RepairNetwork(ctx context.Context) error {
	if err := writeNetwork(l.place, l.subnet); err != nil {
		return err
	}
	return l.awaitNetwork(ctx, "bridge")
}

// awaitNetwork returns once containerd has read the network with this plugin.
func (l *Lab) awaitNetwork(ctx context.Context, plugin string) error {
	return poll(ctx, "containerd to read its network", func() (bool, error) {
		resp, err := l.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
		return strings.Contains(resp.GetInfo()["cniconfig"], `"type":"`+plugin+`"`), err
	})
}

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
