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

// fillName is the file that takes the space.
const fillName = "full"

// disks are what containerd writes to.
func (p place) disks() []string {
	return []string{filepath.Join(p.dir, "root"), filepath.Join(p.dir, "state")}
}

// mountDisks gives containerd small disks of its own.
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

// FillDisk leaves no byte on the disks of containerd, which must have been made
// with [Options.DiskSize]. What is there stays.
func (l *Lab) FillDisk() error {
	if l.opts.DiskSize == 0 {
		return errors.New("fill disk: the lab has none of its own")
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
	for size := 1 << 20; size > 0; { // the last byte too
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

// FreeDisk undoes [Lab.FillDisk]; without it, it does nothing.
func (l *Lab) FreeDisk() error {
	for _, dir := range l.place.disks() {
		if err := os.Remove(filepath.Join(dir, fillName)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("free disk: %w", err)
		}
	}
	return nil
}

// slowPlugin is the CNI plugin bridge, which takes an address back only while a
// file is not there.
const slowPlugin = "slow"

const slowScript = `#!/bin/sh
while [ "$CNI_COMMAND" = DEL ] && [ -e '%[1]s/hang' ]; do
	: > '%[1]s/hanging'
	sleep 0.1
done
exec %[2]s
`

// HangTeardown makes the removal of a pod's address hang, for all pods that have
// one, until [Lab.EndTeardown]. The CRI call that asks for it hangs with it.
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
	return poll(ctx, pollPeriod, func() (bool, error) {
		_, err := os.Stat(filepath.Join(l.place.dir, "hanging"))
		return err == nil, nil
	})
}

// EndTeardown undoes [Lab.HangTeardown]: what hangs goes on.
func (l *Lab) EndTeardown() error {
	for _, name := range []string{"hang", "hanging"} {
		if err := os.Remove(filepath.Join(l.place.dir, name)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("end teardown: %w", err)
		}
	}
	return nil
}
