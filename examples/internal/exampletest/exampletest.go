// Package exampletest runs an example against a simulated runtime on a real
// socket and reads what it prints.
package exampletest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// timeout is the longest time to wait for a line. A test that passes does not wait that
// long.
const timeout = 30 * time.Second

// NewRuntime returns a simulated runtime with one pod.
func NewRuntime(t *testing.T, spec simruntime.PodSpec) (*simruntime.Runtime, simruntime.Pod) {
	t.Helper()
	rt, err := simruntime.New(simruntime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pod, err := rt.AddPod(spec)
	if err != nil {
		t.Fatal(err)
	}
	return rt, pod
}

// Output is what a running example prints.
type Output struct {
	t     *testing.T
	lines chan string
}

// Run runs an example until the test ends. The test fails if the example does not end
// with the cause of its context.
func Run(t *testing.T, rt *simruntime.Runtime, example func(ctx context.Context, endpoint string, out io.Writer, log *slog.Logger) error) *Output {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served, stopServing := context.WithCancel(context.Background())
	read, write := io.Pipe()
	o := &Output{t: t, lines: make(chan string)}
	var tasks, serving errgroup.Group
	serving.Go(func() error { return rt.Serve(served, listener) })
	tasks.Go(func() error {
		defer func() { _ = write.Close() }()
		return example(ctx, "unix://"+socket, write, slog.New(slog.DiscardHandler))
	})
	tasks.Go(func() error {
		defer close(o.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			o.lines <- lines.Text()
		}
		return nil
	})
	t.Cleanup(func() {
		cancel()
		for range o.lines {
		}
		if err := tasks.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("the example ended with %v, want %v", err, context.Canceled)
		}
		stopServing()
		if err := serving.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the simulated runtime ended with %v", err)
		}
	})
	return o
}

// Await reads until the example has printed all these lines, in any order, and returns
// all lines read.
func (o *Output) Await(want ...string) []string {
	o.t.Helper()
	missing := make(map[string]bool)
	for _, line := range want {
		missing[line] = true
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var read []string
	for len(missing) > 0 {
		select {
		case line, ok := <-o.lines:
			if !ok {
				o.t.Fatalf("the example ended; it printed %q but not %v", read, missing)
			}
			read = append(read, line)
			delete(missing, line)
		case <-timer.C:
			o.t.Fatalf("the example printed %q but not %v", read, missing)
		}
	}
	return read
}
