// Package process runs the programs of tests as child processes: it waits until they are ready,
// measures their usage, and ends them.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// pollPeriod is the time between two looks at the awaited condition.
	pollPeriod = 20 * time.Millisecond
	// stopTimeout is the time that [Process.Stop] leaves to a process.
	stopTimeout = 20 * time.Second
	// tailBytes is how much of its log an error of a process shows.
	tailBytes = 4000
)

// Process is a child process.
type Process struct {
	*exec.Cmd
	// Log is the path of the file with its output.
	Log string

	ended chan struct{} // closed when it has been waited for
	err   error         // of the wait; read it once ended is closed
}

// Start starts a command. Its output is appended to a file, unless the command sets Stdout or
// Stderr. Unless the command says otherwise, it does not get the Ctrl-C of this process, and is
// killed when this process ends.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if cmd.Stdout == nil {
		cmd.Stdout = file
	}
	if cmd.Stderr == nil {
		cmd.Stderr = file
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = attributes()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	p := &Process{Cmd: cmd, Log: log, ended: make(chan struct{})}
	go func() { // until the process has ended; Stop and Kill wait for that
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// Alive returns an error with the end of the log if the process has ended.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %w: %s", filepath.Base(p.Path), errors.Join(p.err), p.Tail())
	default:
		return nil
	}
}

// Tail returns the end of the log.
func (p *Process) Tail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(text[max(0, len(text)-tailBytes):]))
}

// Await waits until ready returns nil. It returns an error if the process or ctx ends before.
func (p *Process) Await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := Await(ctx, func(ctx context.Context) error {
		if err := p.Alive(); err != nil {
			cancel(err)
		}
		return ready(ctx)
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w: %s", filepath.Base(p.Path), err, p.Tail())
	}
	return nil
}

// Await calls done again and again until it returns nil, or ctx ends.
func Await(ctx context.Context, done func(context.Context) error) error {
	ticker := time.NewTicker(pollPeriod)
	defer ticker.Stop()
	var last error
	for {
		err := done(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // a call that ctx cuts off says nothing
			last = err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		}
	}
}

// Stop sends SIGTERM, also to a process that is paused, and kills the process if it does not
// end in time. It returns an error unless the process ends with code 0. Stop may be called
// again.
func (p *Process) Stop() error { return p.end(syscall.SIGTERM) }

// Interrupt is Stop with the signal of Ctrl-C.
func (p *Process) Interrupt() error { return p.end(syscall.SIGINT) }

func (p *Process) end(by os.Signal) error {
	_ = p.Process.Signal(by)
	_ = p.Process.Signal(syscall.SIGCONT)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-p.ended:
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("%s has not ended within %v of %v", filepath.Base(p.Path), stopTimeout, by)
	}
	if p.err != nil {
		return fmt.Errorf("end of %s: %w: %s", filepath.Base(p.Path), p.err, p.Tail())
	}
	return nil
}

// Kill ends the process with SIGKILL.
func (p *Process) Kill() {
	_ = p.Process.Kill()
	<-p.ended
}

// Pause stops the process with SIGSTOP, until Continue.
func (p *Process) Pause() error { return p.Process.Signal(syscall.SIGSTOP) }

// Continue lets a paused process run again.
func (p *Process) Continue() error { return p.Process.Signal(syscall.SIGCONT) }

// PID is the id of the process.
func (p *Process) PID() int { return p.Process.Pid }
