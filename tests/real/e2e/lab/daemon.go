//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
)

// startDaemon starts the runtime in its own session, so that neither Ctrl-C nor the end of
// this process ends it before the lab has removed its pods.
func (l *Lab) startDaemon() error {
	command := l.engine.daemon(l.binaries, l.place)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), l.engine.env(l.binaries, l.place)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	d, err := process.Start(cmd, l.place.file("runtime.log"))
	if err == nil {
		l.daemon = d
	}
	return err
}

// poll calls f periodically until it reports done or an error, or ctx ends.
func poll(ctx context.Context, what string, f func() (done bool, err error)) error {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	for {
		done, err := f()
		if ctx.Err() != nil && !done && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		if done {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}

// FreezeShim stops the shim of a pod with SIGSTOP, or the monitor of its first container.
// Until [Lab.ThawShim] the runtime learns nothing new about its containers.
func (l *Lab) FreezeShim(ctx context.Context, p *Pod) error {
	pid, err := l.signalShim(p, syscall.SIGSTOP)
	if err != nil {
		return err
	}
	return poll(ctx, "the stop of the shim of "+p.Name, func() (bool, error) { return stopped(pid) })
}

// ThawShim continues a shim that [Lab.FreezeShim] stopped.
func (l *Lab) ThawShim(p *Pod) error {
	_, err := l.signalShim(p, syscall.SIGCONT)
	return err
}

// FreezeCgroup moves the process that [Lab.FreezeShim] would stop into a cgroup and freezes the
// cgroup, until [Lab.ThawCgroup]. With cgroup v1 the process waits in state D.
func (l *Lab) FreezeCgroup(ctx context.Context, p *Pod, v1 bool) error {
	pid, err := l.signalShim(p, 0)
	if err != nil {
		return err
	}
	root, file, freeze, said := "/sys/fs/cgroup", "cgroup.freeze", "1", "cgroup.events"
	if HasCgroupV1() {
		root += "/unified"
	}
	if v1 {
		root, file, freeze, said = "/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "freezer.state"
	}
	l.frozen = filepath.Join(root, l.place.name()+"-frozen")
	for _, err := range []error{
		os.Mkdir(l.frozen, 0o755),
		os.WriteFile(filepath.Join(l.frozen, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0),
		os.WriteFile(filepath.Join(l.frozen, file), []byte(freeze), 0),
	} {
		if err != nil {
			return fmt.Errorf("freeze the shim of %s: %w", p.Name, err)
		}
	}
	return poll(ctx, "the frozen cgroup", func() (bool, error) {
		state, err := os.ReadFile(filepath.Join(l.frozen, said))
		return bytes.Contains(state, []byte("FROZEN")) || bytes.Contains(state, []byte("frozen 1")), err
	})
}

// ThawCgroup undoes [Lab.FreezeCgroup]; without it, nothing.
func (l *Lab) ThawCgroup() error {
	if l.frozen == "" {
		return nil
	}
	dir := l.frozen
	l.frozen = ""
	errs := []error{os.WriteFile(filepath.Join(dir, "cgroup.freeze"), []byte("0"), 0)}
	if _, err := os.Stat(filepath.Join(dir, "freezer.state")); err == nil {
		errs[0] = os.WriteFile(filepath.Join(dir, "freezer.state"), []byte("THAWED"), 0)
	}
	var err error
	for range 100 { // the thawed processes may start others here
		for _, pid := range cgroupProcs(dir) { // the write fails for a process that has ended
			_ = os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
		}
		if err = os.Remove(dir); err == nil {
			break
		}
		time.Sleep(pollPeriod)
	}
	return errors.Join(append(errs, err)...)
}

// HasCgroupV1 reports whether the machine uses cgroup v1, in which a frozen process waits in state
// D.
func HasCgroupV1() bool {
	_, err := os.Stat("/sys/fs/cgroup/freezer")
	return err == nil
}

// KillMonitor kills the process that [Lab.FreezeShim] would stop. A container of CRI-O continues,
// and CRI-O never learns its end.
func (l *Lab) KillMonitor(p *Pod) error {
	_, err := l.signalShim(p, syscall.SIGKILL)
	return err
}

// KillShim kills the shim of a pod. containerd then ends the containers of the pod
// with code 255. KillShim returns once the runtime reports the pod as dead.
func (l *Lab) KillShim(ctx context.Context, p *Pod) error {
	began := time.Now()
	if err := l.KillMonitor(p); err != nil {
		return err
	}
	if err := l.awaitAllDied(ctx, p, began, end{255, "Error"}); err != nil {
		return err
	}
	return l.awaitNotReady(ctx, p, began)
}

// awaitNotReady adds the end of a sandbox to the history once the runtime reports it.
func (l *Lab) awaitNotReady(ctx context.Context, p *Pod, began time.Time) error {
	err := poll(ctx, "the end of the sandbox of "+p.Name, func() (bool, error) {
		resp, err := l.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.SandboxID})
		return resp.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY, err
	})
	if err == nil {
		l.history.add(p.entry(Died, began))
	}
	return err
}

// signalShim signals the pod's shim, or the monitor of its first container; its command line
// contains the id of the sandbox or container that it watches.
func (l *Lab) signalShim(p *Pod, signal syscall.Signal) (pid int, err error) {
	ids := []string{p.SandboxID}
	if containers := p.Containers(); len(containers) > 0 {
		ids = append(ids, containers[0].ID)
	}
	for _, pid := range l.place.shims() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		watches := func(id string) bool { return bytes.Contains(cmdline, []byte("\x00"+id+"\x00")) }
		if slices.ContainsFunc(ids, watches) {
			return pid, syscall.Kill(pid, signal)
		}
	}
	return 0, fmt.Errorf("%v to the shim of %s: it has no process", signal, p.Name)
}

// shims returns the shims and monitors of all pods.
func (p place) shims() []int {
	return append(p.processesNamed("containerd-shim"), p.processesNamed("conmon")...)
}

// processesNamed returns the processes whose command lines name a file in the lab's folder and
// whose names begin with a prefix.
func (p place) processesNamed(prefix string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name, _, _ := bytes.Cut(cmdline, []byte{0})
		if strings.HasPrefix(filepath.Base(string(name)), prefix) && bytes.Contains(cmdline, []byte(p.dir+"/")) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// stopped reports whether all threads of a process are stopped, which takes a
// while after the signal.
func stopped(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, fmt.Errorf("list threads of process %d: %w", pid, err)
	}
	for _, stat := range stats {
		data, err := os.ReadFile(stat)
		if err != nil {
			return false, fmt.Errorf("read state of a thread: %w", err)
		}
		// The state follows the name, which is in parentheses.
		_, rest, _ := bytes.Cut(data, []byte(") "))
		if !bytes.HasPrefix(rest, []byte("T")) {
			return false, nil
		}
	}
	return true, nil
}
