// Package exampletest runs an example against a simulated runtime on a real
// socket and reads what it prints.
package exampletest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
)

// patience bounds the wait for a line. A test that passes never waits for it.
const patience = 30 * time.Second

// Output is what a running example prints.
type Output struct {
	t     *testing.T
	lines chan string
}

// Run runs an example until the test ends, which fails if the example ends with
// anything but the cause of its context.
func Run(t *testing.T, rt *simruntime.Runtime, example func(ctx context.Context, endpoint string, out io.Writer) error) *Output {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	ctx, cancel := context.WithCancel(context.Background())
	served, stopServing := context.WithCancel(context.Background())
	read, write := io.Pipe()
	o := &Output{t: t, lines: make(chan string)}
	var tasks, serving errgroup.Group
	serving.Go(func() error { return rt.ListenAndServe(served, socket) })
	tasks.Go(func() error {
		defer func() { _ = write.Close() }()
		return example(ctx, "unix://"+socket, write)
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
			t.Errorf("the example ended with %v", err)
		}
		stopServing()
		if err := serving.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the simulated runtime ended with %v", err)
		}
	})
	return o
}

// Await reads until each of these lines has been printed, in any order, and
// returns all lines read.
func (o *Output) Await(want ...string) []string {
	o.t.Helper()
	missing := make(map[string]bool)
	for _, line := range want {
		missing[line] = true
	}
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	var read []string
	for len(missing) > 0 {
		select {
		case line, ok := <-o.lines:
			if !ok {
				o.t.Fatalf("the example has ended; it printed %q and not %v", read, missing)
			}
			read = append(read, line)
			delete(missing, line)
		case <-timeout.C:
			o.t.Fatalf("the example printed %q and not %v", read, missing)
		}
	}
	return read
}
