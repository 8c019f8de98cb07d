//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

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
	return nil
}

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
	return nil
}

// slowPlugin is the CNI plugin bridge, except that its DEL waits while a file
// exists.
const slowPlugin = "slow"

const slowScript = `#!/bin/sh
while [ "$CNI_COMMAND" = DEL ] && [ -e '%[1]s/hang' ]; do
	: > '%[1]s/hanging'
	sleep 0.1
done
exec %[2]s
`

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
