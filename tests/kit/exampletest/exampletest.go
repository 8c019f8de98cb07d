// Package exampletest runs an example on a simulated runtime, through a real socket,
// and reads what it prints.
package exampletest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// timeout is the longest time to wait for a line. A test that passes does not wait that
// long.
const timeout = 30 * time.Second

// NewRuntime returns a simulated runtime with one pod.
func NewRuntime(t *testing.T, spec simruntime.PodSpec) (*simruntime.Runtime, *pleg.PodStatus) {
	t.Helper()
	rt := simruntime.New(simruntime.Options{})
	return rt, rt.AddPod(spec)
}

// Output receives the lines that a running example prints.
type Output struct {
	t     *testing.T
	lines chan string
}

// Write implements [io.Writer]. The examples print each line with a single Write.
func (o *Output) Write(line []byte) (int, error) {
	o.lines <- strings.TrimSuffix(string(line), "\n")
	return len(line), nil
}

// Run runs an example until the test ends. The test fails if the example does not end
// with the cause of its context.
func Run(t *testing.T, rt *simruntime.Runtime, example func(ctx context.Context, endpoint string, out io.Writer, log *slog.Logger) error) *Output {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	kit.Must(t, err)
	o := &Output{t: t, lines: make(chan string, 1000)} // more than any example prints
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, listener) })
	kit.Run(t, func(ctx context.Context) error {
		return example(ctx, "unix://"+socket, o, slog.New(slog.DiscardHandler))
	})
	return o
}

// Await reads until the example has printed all these lines, in any order, and returns
// all lines read.
func (o *Output) Await(want ...string) (read []string) {
	o.t.Helper()
	missing := make(map[string]bool)
	for _, line := range want {
		missing[line] = true
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for len(missing) > 0 {
		select {
		case line := <-o.lines:
			read = append(read, line)
			delete(missing, line)
		case <-timer.C:
			o.t.Fatalf("the example printed %q but not %v", read, missing)
		}
	}
	return read
}
