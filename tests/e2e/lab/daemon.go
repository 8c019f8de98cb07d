//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// daemon is a running container runtime.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has been waited for
}

// startDaemon starts the runtime in its own session, so that Ctrl-C does not end it
// before the lab has removed its pods.
func startDaemon(e engine, b binaries, p place) (*daemon, error) {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open runtime log: %w", err)
	}
	defer func() { _ = log.Close() }()

	command, env := e.daemon(b, p)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	d := &daemon{cmd: cmd, exited: make(chan struct{})}
	// This goroutine ends with the process; kill and terminate wait for it.
	go func() {
		defer close(d.exited)
		_ = cmd.Wait()
	}()
	return d, nil
}

// alive reports whether the process still runs.
func (d *daemon) alive() bool {
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

func (d *daemon) signal(sig os.Signal) error {
	if err := d.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("signal the runtime: %w", err)
	}
	return nil
}

func (d *daemon) kill() {
	_ = d.cmd.Process.Kill()
	<-d.exited
}

// terminate sends SIGTERM, and kills the process if ctx ends first.
func (d *daemon) terminate(ctx context.Context) {
	_ = d.cmd.Process.Signal(syscall.SIGCONT)
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.exited:
	case <-ctx.Done():
		d.kill()
	}
}

// logTail returns the end of the runtime's log for an error message.
func logTail(p place) string {
	data, err := os.ReadFile(p.log())
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(data[max(0, len(data)-2000):]))
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

// FreezeShim stops the shim of a pod with SIGSTOP. Until [Lab.ThawShim] containerd
// learns nothing new about its containers.
func (l *Lab) FreezeShim(ctx context.Context, p *Pod) error {
	pid, err := l.shim(p)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("freeze the shim of %s: %w", p.Name, err)
	}
	return poll(ctx, "the stop of the shim of "+p.Name, func() (bool, error) { return stopped(pid) })
}

// LoseExit kills a container while the shim of its pod is frozen: containerd learns
// nothing of it and calls the container running. [Lab.ThawShim] makes up for that.
func (l *Lab) LoseExit(ctx context.Context, c *Container) error {
	if err := l.FreezeShim(ctx, c.Pod); err != nil {
		return err
	}
	return l.killCgroup(ctx, c.ID)
}

// ThawShim continues a shim that [Lab.FreezeShim] stopped.
func (l *Lab) ThawShim(p *Pod) error {
	pid, err := l.shim(p)
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		return fmt.Errorf("thaw the shim of %s: %w", p.Name, err)
	}
	return nil
}

// KillShim kills the shim of a pod. containerd then ends the containers of the pod
// with code 255. KillShim returns once the runtime reports the pod as dead.
func (l *Lab) KillShim(ctx context.Context, p *Pod) error {
	pid, err := l.shim(p)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the shim of %s: %w", p.Name, err)
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

// shim returns the process of the pod's shim; its command line has the sandbox id.
func (l *Lab) shim(p *Pod) (int, error) {
	for _, pid := range l.place.shims() {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(cmdline, []byte("\x00"+p.SandboxID+"\x00")) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("find the shim of %s: it has no process", p.Name)
}

// shims returns the shims of all pods.
func (p place) shims() []int { return p.processesNamed("containerd-shim") }

// processesNamed returns the processes whose command lines name a file in the lab's
// folder and whose names have a prefix.
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
