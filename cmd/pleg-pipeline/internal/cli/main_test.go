package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// asProgram makes the test binary be the program, for tests that need signals
// and real pipes.
const asProgram = "PLEG_PIPELINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Main())
	}
	goleak.VerifyTestMain(m)
}

// transcript keeps what is written and lets others wait for parts of it.
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

// await blocks until the text holds part and returns the text so far.
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
			t.Fatalf("the test ended before %q was written; there is:\n%s", part, text)
		}
	}
}

// started is a command that runs in this process.
type started struct {
	stderr *transcript
	stop   context.CancelFunc
	code   chan int
}

// start runs a command with an empty environment.
func start(t *testing.T, out io.Writer, args ...string) *started {
	t.Helper()
	return startWith(t, out, nil, args...)
}

// startWith runs a command with an environment.
func startWith(t *testing.T, out io.Writer, environment map[string]string, args ...string) *started {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &started{stderr: newTranscript(), stop: cancel, code: make(chan int, 1)}
	go func() {
		s.code <- cli.Execute(ctx, cli.Process{Args: args, Out: out, Err: s.stderr, Getenv: func(name string) string { return environment[name] }})
	}()
	t.Cleanup(cancel)
	return s
}

// ends waits for the end of the command and checks its exit code.
func (s *started) ends(t *testing.T, want int) {
	t.Helper()
	if got := <-s.code; got != want {
		t.Errorf("exit code %d, want %d; stderr:\n%s", got, want, s.stderr)
	}
}

// run runs a command that ends by itself and returns its output.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	out := newTranscript()
	s := start(t, out, args...)
	return <-s.code, out.String(), s.stderr.String()
}
