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
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/process"
)

// waitTimeout bounds every wait, call and command. It is long because the machine may be busy.
const waitTimeout = 3 * time.Minute

// program returns the path of a program that setup.sh has built.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(".bin", name))
	must(t, err)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("run tests/real/cluster/run.sh: %v", err)
	}
	return path
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a program in an empty folder until the test ends.
func start(t *testing.T, path string, args ...string) *process.Process {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(path, args...)
	cmd.Dir = filepath.Join(dir, "cwd")
	must(t, os.Mkdir(cmd.Dir, 0o755))
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, "containerd"))+":"+os.Getenv("PATH"))
	p, err := process.Start(cmd, filepath.Join(dir, "log"))
	must(t, err)
	t.Cleanup(func() {
		_ = p.Stop()
		if t.Failed() {
			t.Logf("end of the log of %s:\n%s", filepath.Base(path), p.Tail())
		}
	})
	return p
}

// bounded returns a context that ends after [waitTimeout], or with the test.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), waitTimeout, fmt.Errorf("not within %v", waitTimeout))
	t.Cleanup(cancel)
	return ctx
}

// await waits until done returns nil.
func await(t *testing.T, what string, done func(ctx context.Context) error) {
	t.Helper()
	if err := process.Await(bounded(t), done); err != nil {
		t.Fatalf("%s: %v", what, err)
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
