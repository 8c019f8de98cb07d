// Package exampletest runs an example on a simulated runtime, through a real socket,
// and reads what it prints.
package exampletest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

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
	endpoint := serve(t, rt)
	o := &Output{t: t, lines: make(chan string, 1000)} // more than any example prints
	kit.Run(t, func(ctx context.Context) error { return example(ctx, endpoint, o, slog.New(slog.DiscardHandler)) })
	return o
}

func serve(t *testing.T, rt *simruntime.Runtime) (endpoint string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "cri.sock")
	listener, err := net.Listen("unix", socket)
	kit.Must(t, err)
	kit.Run(t, func(ctx context.Context) error { return rt.Serve(ctx, listener) })
	return "unix://" + socket
}

// asProgram makes the test binary of an example run as the example.
const asProgram = "PLEG_PIPELINE_TEST_AS_EXAMPLE"

// Main is the TestMain of an example.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// RequireProgram runs an example as a program. Its output is on stdout, and begins with some skips
// perhaps. Its log is on stderr: with these texts, and what the client of the runtime and the pipeline
// say. A signal ends it without an error.
func RequireProgram(t *testing.T, name, prints string, logs ...string) {
	t.Helper()
	for endpoint, want := range map[string]int{"": 2, "http://nowhere": 1} {
		var stderr strings.Builder
		cmd := command(t, endpoint)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != want || len(out) > 0 || !strings.Contains(stderr.String(), name) {
			t.Errorf("%s %s: %v, printed %q and %q on stderr, want exit code %d", name, endpoint, err, out, &stderr, want)
		}
	}
	rt, _ := NewRuntime(t, simruntime.PodSpec{UID: "u", Namespace: "shop", Name: "web", Containers: []pleg.ContainerStatus{{Name: "nginx"}}})
	bad := rt.AddPod(simruntime.PodSpec{Namespace: "shop", Name: "bad"})
	rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", Code: codes.Unavailable, Times: 1})
	rt.Inject(simruntime.Fault{RPC: "ListPodSandbox", PodUID: bad.UID, Malform: simruntime.NilMetadata})
	var stderr strings.Builder
	cmd := command(t, serve(t, rt))
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	kit.Must(t, err)
	kit.Must(t, cmd.Start())
	var printed []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if printed = append(printed, lines.Text()); lines.Text() == prints {
			kit.Must(t, cmd.Process.Signal(syscall.SIGTERM))
		}
	}
	if err := cmd.Wait(); err != nil || !slices.Contains(printed, prints) {
		t.Errorf("%s: %v, printed %q, want %q", name, err, printed, prints)
	}
	for _, want := range append(logs, "malformed item in list", "relist failed") {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%s logged %s\nwant %q", name, &stderr, want)
		}
	}
}

// command is an example before its start, with no argument for an empty endpoint. It ends with the test.
func command(t *testing.T, endpoint string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	kit.Must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, strings.Fields(endpoint)...)
	// Without GORACE a program that the race detector checks sleeps for a second at its end.
	cmd.Env = []string{asProgram + "=1", "GORACE=atexit_sleep_ms=0"}
	return cmd
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
