package cli_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// asProgram makes the test binary run as the program, for tests that need signals
// and real pipes.
const asProgram = "PLEG_PIPELINE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if as := os.Getenv(asProgram); as != "" {
		code := cli.Main()
		if as == "GOGC" {
			fmt.Println(debug.SetGCPercent(-1))
		}
		os.Exit(code)
	}
	time.Local = time.UTC
	flag.Parse()
	// These tests wait more than they compute.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// transcript records written text. Tests can wait for parts of it.
type transcript struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced at each write
	ended   string        // how the command ended; empty while it runs
}

func newTranscript() *transcript { return &transcript{changed: make(chan struct{})} }

func (w *transcript) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wake()
	return w.text.Write(p)
}

// wake needs the lock.
func (w *transcript) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// end makes await fail at once: nothing more will be written.
func (w *transcript) end(how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = how
	w.wake()
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
		text, changed, ended := w.text.String(), w.changed, w.ended
		w.mu.Unlock()
		switch {
		case strings.Contains(text, part):
			return text
		case ended != "":
			t.Fatalf("the command ended before it wrote %q: %s; its output:\n%s", part, ended, text)
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
	return startIn(t, cli.Process{}, out, args...)
}

func startIn(t *testing.T, process cli.Process, out io.Writer, args ...string) *runningCommand {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	s := &runningCommand{stderr: newTranscript(), stop: cancel, code: sync.OnceValue(func() int { return <-code })}
	go func() {
		process.Args, process.Out, process.Err = args, out, s.stderr
		got := cli.Execute(ctx, process)
		how := fmt.Sprintf("exit code %d, stderr %q", got, s.stderr)
		s.stderr.end(how)
		if stdout, ok := out.(*transcript); ok {
			stdout.end(how)
		}
		code <- got
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
	return execute(t, cli.Process{}, args...)
}

// execute runs the program in a process with streams of its own.
func execute(t *testing.T, p cli.Process, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	out, problems := newTranscript(), newTranscript()
	p.Args, p.Out, p.Err = args, out, problems
	code = cli.Execute(t.Context(), p)
	return code, out.String(), problems.String()
}

func with(environment map[string]string) cli.Process {
	return cli.Process{Getenv: func(name string) string { return environment[name] }}
}

// relative returns a path from the present folder.
func relative(t *testing.T, path string) string {
	t.Helper()
	here, err := os.Getwd()
	kit.Must(t, err)
	path, err = filepath.Rel(here, path)
	kit.Must(t, err)
	return path
}

// simulated runs a runtime with this number of pods until the test ends, and returns its endpoint.
func simulated(t *testing.T, pods int, flags ...string) string {
	t.Helper()
	socket := socketPath(t)
	s := start(t, io.Discard, slices.Concat([]string{"simulate", "--socket", relative(t, socket), "--pods", strconv.Itoa(pods), "--churn-rate", "0"}, flags)...)
	t.Cleanup(func() { s.stopAndWait(t) })
	s.stderr.await(t, " on unix://"+socket+" until interrupted\n")
	s.stderr.await(t, "simulated runtime serves")
	return "unix://" + socket
}

// startDaemon runs a daemon of a simulated runtime on a socket until the test ends. It
// returns when the daemon knows all its pods.
func startDaemon(t *testing.T, socket string) *runningCommand {
	t.Helper()
	out := newTranscript()
	s := start(t, out, "run", "--simulate=2", "--churn-rate", "0", "--quiet", "--socket", socket, "-v", "warn")
	t.Cleanup(func() {
		if s.stopAndWait(t); out.String() != "" {
			t.Errorf("a quiet daemon printed %q", out)
		}
	})
	s.stderr.await(t, "connected to")
	waitForPods(t, socket, 2)
	return s
}

// waitForPods waits until a daemon has inspected n pods, and returns them.
func waitForPods(t *testing.T, socket string, n int) []cache.Entry {
	t.Helper()
	c := newClient(t, socket)
	kit.Must(t, c.WaitSynced(t.Context()))
	for _, err := range c.Watch(t.Context(), pleg.SubscribeOptions{Replay: true, Bookmarks: true}) {
		kit.Must(t, err)
		known, _, err := c.Pods(t.Context())
		kit.Must(t, err)
		waiting := func(p cache.Entry) bool { return p.Status == nil }
		if len(known) >= n && !slices.ContainsFunc(known, waiting) {
			return known
		}
	}
	t.Fatal("the watch ended")
	return nil
}

func TestRunServesSocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "created", "pleg.sock") // the daemon creates the directory
	s := startDaemon(t, relative(t, socket))
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("socket = %v, %v, want mode 0660", info.Mode(), err)
	}
	other := filepath.Join(t.TempDir(), "other")
	kit.Must(t, os.Mkdir(other, 0o755))
	want, err := os.Stat(other)
	kit.Must(t, err)
	if dir, err := os.Stat(filepath.Dir(socket)); err != nil || dir.Mode() != want.Mode() {
		t.Errorf("its directory = %v, %v, want that others find the socket", dir.Mode(), err)
	}
	if now, err := newClient(t, socket).Status(t.Context()); err != nil || now.Version != "(devel)" {
		t.Errorf("the version of the daemon is %q, %v", now.Version, err)
	}
	code, _, stderr := run(t, "run", "--simulate=1", "--socket", socket)
	if code != cli.ExitFailure || !strings.Contains(stderr, "--socket: ") || !strings.Contains(stderr, "in use") {
		t.Errorf("second daemon: exit code %d, stderr %q, want that the socket is in use", code, stderr)
	}
	s.stopAndWait(t)
	said := regexp.MustCompile(`^pleg-pipeline: the runtime is simulated: 2 pods, 0 changes/s, seed 1
pleg-pipeline: serving pods and events on ` + socket + `; to see them: pleg-pipeline events --connect ` + socket + `
pleg-pipeline: connected to simruntime 0\.1\.0 at unix:///\S+/cri\.sock
(time=.*\n)*pleg-pipeline: context canceled after (\d00ms|\d+(\.\d)?s): \d+ relists, 8 events, 0 missed by subscribers\n$`)
	if !said.MatchString(s.stderr.String()) {
		t.Errorf("stderr %q, want %v", s.stderr, said)
	}
	if _, err := os.Stat(socket); err == nil {
		t.Errorf("%s still exists", socket)
	}
}
