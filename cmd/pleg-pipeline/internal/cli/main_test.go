package cli_test

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// asProgram makes the test binary run as the program, for tests that need signals
// and real pipes.
const asProgram = "PLEG_PIPELINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main())
	}
	flag.Parse()
	// These tests wait more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// transcript records what is written. Tests can wait for parts of it.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced at each write
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changed)
	w.changed = make(chan struct{})
	return w.text.Write(p)
}

func (w *transcript) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await blocks until the text contains part and returns the text so far.
func (w *transcript) await(t *testing.T, part string) string {
	t.Helper()
	for {
		w.mu.Lock()
		text, changed := w.text.String(), w.changed
		w.mu.Unlock()
		if strings.Contains(text, part) {
			return text
		}
		select {
		case <-changed:
		case <-t.Context().Done():
			t.Fatalf("the test ended before %q was written; output so far:\n%s", part, text)
		}
	}
}

// runningCommand is a command that runs in this process.
type runningCommand struct {
	stderr *transcript
	stop   context.CancelFunc
	// code waits for the end of the command and returns its exit code.
	code func() int
}

// start runs a command with an empty environment.
func start(t *testing.T, out io.Writer, args ...string) *runningCommand {
	t.Helper()
	return startWith(t, out, nil, args...)
}

// startWith runs a command with an environment.
func startWith(t *testing.T, out io.Writer, environment map[string]string, args ...string) *runningCommand {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	s := &runningCommand{stderr: newTranscript(), stop: cancel, code: sync.OnceValue(func() int { return <-code })}
	go func() {
		code <- cli.Execute(ctx, cli.Process{Args: args, Out: out, Err: s.stderr, Getenv: func(name string) string { return environment[name] }})
	}()
	t.Cleanup(cancel)
	return s
}

// stopAndWait stops the command and checks that its exit code is ExitOK.
func (s *runningCommand) stopAndWait(t *testing.T) {
	t.Helper()
	s.stop()
	s.ends(t, cli.ExitOK)
}

// ends waits for the end of the command and checks its exit code.
func (s *runningCommand) ends(t *testing.T, want int) {
	t.Helper()
	if got := s.code(); got != want {
		t.Errorf("exit code %d, want %d; stderr:\n%s", got, want, s.stderr)
	}
}

// run runs a command until it ends by itself and returns its output.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	out := newTranscript()
	s := start(t, out, args...)
	return s.code(), out.String(), s.stderr.String()
}
