//go:build linux

package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// waitTimeout bounds every wait. It is long because the machine may be busy.
	waitTimeout = 3 * time.Minute
	pollPeriod  = 100 * time.Millisecond
	// logTail is how much of a process's log a failed test shows.
	logTail = 3000
)

// program returns the path of a program that setup.sh has built.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(".bin", name))
	must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run tests/cluster/run.sh: %v", err)
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is a running program. Its output is in a file.
type process struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{} // closed when it has been waited for
}

// start runs a program in an empty folder until the test ends.
func start(t *testing.T, path string, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{cmd: exec.Command(path, args...), log: filepath.Join(dir, "log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	must(t, err)
	defer log.Close()
	p.cmd.Dir = filepath.Join(dir, "cwd")
	must(t, os.Mkdir(p.cmd.Dir, 0o755))
	p.cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, "containerd"))+":"+os.Getenv("PATH"))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// Ctrl-C must not end it before the test does.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must(t, p.cmd.Start())
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", filepath.Base(path), p.tail())
		}
	})
	return p
}

// stop ends the process, by force if it does not end in time.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(20 * time.Second):
		p.kill()
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}

// await polls until done returns nil.
func await(t *testing.T, what string, done func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for {
		err := done(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(pollPeriod):
		case <-ctx.Done():
			t.Fatalf("%s: not within %v: %v", what, waitTimeout, err)
		}
	}
}

// run runs a program to its end and returns its standard output.
func run(ctx context.Context, path string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		err = fmt.Errorf("%s %s: %w: %s", filepath.Base(path), strings.Join(args, " "), err, failed.Stderr)
	}
	return string(out), err
}
