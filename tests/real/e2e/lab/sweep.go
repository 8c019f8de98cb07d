//go:build linux

package lab

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cniCache is where libcni stores the result of each sandbox. Neither runtime can be configured to
// use another folder.
const cniCache = "/var/lib/cni/results"

// destroyTimeout bounds each step of the removal of a lab.
const destroyTimeout = 30 * time.Second

// sweep removes the labs of killed processes, but no lab in use.
func sweep(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), placePrefix+"*"))
	if err != nil {
		return fmt.Errorf("find old labs: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		unlock, err := lockFile(dir, syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue // in use
		}
		errs = append(errs, place{dir}.destroy(ctx))
		unlock()
	}
	return errors.Join(errs...)
}

// destroy removes a lab by force.
func (p place) destroy(ctx context.Context) error {
	var errs []error
	// Each step gets its own timeout, because a busy machine may be slow.
	within := func(step func(context.Context) error) {
		ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
		defer cancel()
		errs = append(errs, step(ctx))
	}
	within(p.killProcesses)
	for _, target := range p.mounts() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil {
			errs = append(errs, fmt.Errorf("unmount %s: %w", target, err))
		}
	}
	within(p.removeCgroups)
	within(p.removeNetwork)
	if err := os.RemoveAll(p.dir); err != nil {
		errs = append(errs, fmt.Errorf("remove lab folder: %w", err))
	}
	return errors.Join(errs...)
}

// killProcesses retries, because a shim may start another process meanwhile.
func (p place) killProcesses(ctx context.Context) error {
	return poll(ctx, "the end of the processes of "+p.name(), func() (bool, error) {
		pids := p.processes()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0, nil
	})
}

// processes returns the runtime and the shims or monitors, whose command lines name
// a file in the lab's folder, and the processes in the lab's cgroups.
func (p place) processes() []int {
	var pids []int
	for _, name := range []string{"containerd", "crio", "conmon"} {
		pids = append(pids, p.processesNamed(name)...)
	}
	pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == os.Getpid() })
	for _, dir := range p.cgroups() {
		pids = append(pids, cgroupProcs(dir)...)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// cgroups returns the lab's cgroup folders in every hierarchy, children first.
func (p place) cgroups() []string {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + p.name())
	roots = append(roots, filepath.Join("/sys/fs/cgroup", p.name()))
	var dirs []string
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
	}
	slices.Reverse(dirs)
	return dirs
}

func cgroupProcs(dir string) []int {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	var pids []int
	for word := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeCgroups retries, because a cgroup is busy for a moment after its last
// process has died.
func (p place) removeCgroups(ctx context.Context) error {
	return poll(ctx, "the removal of the cgroups of "+p.name(), func() (bool, error) {
		dirs := p.cgroups()
		for _, dir := range dirs {
			_ = syscall.Rmdir(dir)
		}
		return len(dirs) == 0, nil
	})
}

// mounts returns the mount points in the lab's folder, newest first.
func (p place) mounts() []string {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	var targets []string
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], p.dir+"/") {
			targets = append(targets, f[4])
		}
	}
	slices.Reverse(targets)
	return targets
}

// removeNetwork deletes the bridge and libcni's results. The pods' interfaces
// ended with their network namespaces.
func (p place) removeNetwork(ctx context.Context) error {
	results, _ := filepath.Glob(filepath.Join(cniCache, p.name()+"-*"))
	for _, result := range results {
		_ = os.Remove(result)
	}
	if _, err := os.Stat(filepath.Join("/sys/class/net", p.bridge())); err != nil {
		return nil
	}
	_, err := run(ctx, "", nil, "ip", "link", "delete", p.bridge())
	return err
}

// shimSockets are the sockets of the shims of containerd 1.
const shimSockets = "/run/containerd/s"

// removeOldFiles deletes the files that containerd 1 leaves outside the lab's folder: the
// sockets of killed shims and libcni's results for loopback interfaces. Both are named after the
// sandbox, whose id only the history contains.
func (l *Lab) removeOldFiles() {
	if !l.engine.old {
		return
	}
	for _, e := range l.history.All() {
		if e.Sandbox {
			name := sha256.Sum256([]byte(filepath.Join(l.place.socket(), "k8s.io", e.ContainerID)))
			_ = os.Remove(filepath.Join(shimSockets, fmt.Sprintf("%x", name)))
			_ = os.Remove(filepath.Join(cniCache, "cni-loopback-"+e.ContainerID+"-lo"))
		}
	}
	// These succeed if the folders are empty.
	_ = os.Remove(shimSockets)
	_ = os.Remove(filepath.Dir(shimSockets))
}
