//go:build linux

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// daemon is a running containerd.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has been waited for
}

// startDaemon starts containerd in its own session, so that Ctrl-C does not end it
// before the lab has removed its pods.
func startDaemon(b binaries, p place) (*daemon, error) {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open containerd log: %w", err)
	}
	defer func() { _ = log.Close() }()

	cmd := exec.Command(filepath.Join(b.dir, "containerd"), "--config", p.config())
	cmd.Env = append(os.Environ(), "PATH="+b.dir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start containerd: %w", err)
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
		return fmt.Errorf("signal containerd: %w", err)
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

// logTail returns the end of containerd's log for an error message.
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
