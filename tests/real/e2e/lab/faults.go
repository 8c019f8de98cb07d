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

// Freeze stops the runtime with SIGSTOP and returns once it has stopped. Every CRI
// call hangs until [Lab.Thaw]. Pods keep running.
func (l *Lab) Freeze(ctx context.Context) error {
	if err := l.daemon.Pause(); err != nil {
		return fmt.Errorf("freeze the runtime: %w", err)
	}
	return poll(ctx, "the stop of the runtime", func() (bool, error) { return stopped(l.PID()) })
}

// Thaw continues a runtime that [Lab.Freeze] stopped.
func (l *Lab) Thaw() error { return l.daemon.Continue() }

// Crash kills the runtime and returns when it is dead. Pods keep running. Only
// [Lab.Revive], [Lab.KillProcess] and [Lab.Stop] may follow.
func (l *Lab) Crash() { l.daemon.Kill() }

// Terminate is [Lab.Crash] with SIGTERM.
func (l *Lab) Terminate() { _ = l.daemon.Stop() }

// Revive starts the runtime again after [Lab.Crash] or [Lab.Terminate] and
// returns once it answers.
func (l *Lab) Revive(ctx context.Context) error {
	if l.daemon.Alive() == nil {
		return errors.New("revive the runtime: it is running")
	}
	l.revived.Store(time.Now().UnixNano())
	if err := l.startDaemon(); err != nil {
		return err
	}
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

// RemoveNetwork removes the configuration of the network until [Lab.RepairNetwork]: the runtime says
// that its network is not ready.
func (l *Lab) RemoveNetwork() error { return os.Remove(l.place.conflist()) }

// RepairNetwork undoes [Lab.BreakNetwork] and [Lab.RemoveNetwork].
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

// fillName is the file that fills a disk.
const fillName = "full"

// disks returns the folders to which containerd writes.
func (p place) disks() []string {
	return []string{filepath.Join(p.dir, "root"), filepath.Join(p.dir, "state")}
}

// mountDisks mounts small file systems for containerd.
func (p place) mountDisks(size int64) error {
	for _, dir := range p.disks() {
		if err := os.Mkdir(dir, 0o711); err != nil {
			return fmt.Errorf("make disk: %w", err)
		}
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "mode=711,size="+strconv.FormatInt(size, 10)); err != nil {
			return fmt.Errorf("mount disk %s: %w", dir, err)
		}
	}
	return nil
}

// FillDisk leaves no free byte on the disks of containerd. It needs
// [Options.DiskSize].
func (l *Lab) FillDisk() error {
	if l.opts.DiskSize == 0 {
		return errors.New("fill disk: Options.DiskSize is zero")
	}
	for _, dir := range l.place.disks() {
		if err := fillFile(filepath.Join(dir, fillName)); err != nil {
			return fmt.Errorf("fill disk: %w", err)
		}
	}
	l.full = true
	return nil
}

// forgotten is the end of a container as a runtime with [Traits.ForgetsEnds] reports it after
// its next start.
var forgotten = end{-1, "Error"}

func (l *Lab) forgetsEnd() bool { return l.full && l.Traits().ForgetsEnds }

func fillFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for size := 1 << 20; size > 0; { // down to the last byte
		_, err = f.Write(make([]byte, size))
		if err != nil {
			size /= 2
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// FreeDisk undoes [Lab.FillDisk].
func (l *Lab) FreeDisk() error {
	for _, dir := range l.place.disks() {
		if err := os.Remove(filepath.Join(dir, fillName)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("free disk: %w", err)
		}
	}
	l.full = false
	return nil
}

// HangTeardown makes the teardown of every pod's network hang until
// [Lab.EndTeardown]. The CRI call that stops the pod hangs too.
func (l *Lab) HangTeardown(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(l.place.dir, "hang"), nil, 0o600); err != nil {
		return fmt.Errorf("hang teardown: %w", err)
	}
	plugin := l.place.bridgePlugin(l.subnet)
	plugin["type"] = slowPlugin
	if err := writePlugin(l.place, plugin); err != nil {
		return err
	}
	return l.awaitNetwork(ctx, slowPlugin)
}

// AwaitHang returns once a teardown hangs.
func (l *Lab) AwaitHang(ctx context.Context) error {
	return poll(ctx, "a teardown", func() (bool, error) {
		_, err := os.Stat(filepath.Join(l.place.dir, "hanging"))
		return err == nil, nil
	})
}

// EndTeardown undoes [Lab.HangTeardown].
func (l *Lab) EndTeardown() error {
	for _, name := range []string{"hang", "hanging"} {
		if err := os.Remove(filepath.Join(l.place.dir, name)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("end teardown: %w", err)
		}
	}
	return nil
}
