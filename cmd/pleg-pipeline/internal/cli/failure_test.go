package cli_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// failures are correct command lines that cannot work, and what the error must say. A word in
// capitals stands for a file or an address.
var failures = []struct{ args, want string }{
	{"run -r tcp://127.0.0.1:80", "is not a unix socket: want unix:///"},
	{"run -r containerd.sock", "is not a unix socket: want unix:///"},
	{"run -r unix:///nonexistent/s", "the socket does not exist"},
	{"run -r DIR", "it is a directory, not a socket"},
	{"run -r FILE", "it is a file, not a socket"},
	{"run -r STALE", "nobody listens on the socket"},
	{"run -r HTTP", "does not speak gRPC"},
	{"run -r GRPC", "it serves gRPC but not CRI v1"},
	{"run -r GRPC", "name another one with --runtime-endpoint"},
	{"run --simulate --listen BUSY", "--listen: "},
	{"run --simulate --listen BUSY", "address already in use"},
	{"run --simulate --health-listen BUSY", "--health-listen: "},
	{"run --simulate --listen 0 --web-config /nonexistent/web.yaml", "--web-config: "},
	{"run --simulate=1 --socket /nonexistent/deeper/s", "--socket: "},
	{"run --simulate=1 --socket DIR", "not a socket"},
	{"run --simulate=1 --socket /tmp/" + long, "a unix socket allows 107"},
	{"run --simulate=1 --incident-dir /nonexistent/deeper/d", "--incident-dir: "},
	{"simulate --socket SILENT", "listen on SILENT"},
	{"simulate --socket /nonexistent/s", "listen on /nonexistent/s"},
	{"simulate --socket DIR", "listen on DIR"},
	{"events --connect /nonexistent/s", "the socket does not exist: to start a daemon, run pleg-pipeline run --socket /nonexistent/s"},
	{"pods --connect STALE", "no daemon answers: it has ended"},
	{"events --connect FILE", "connect to the daemon at FILE"},
	{"pods --connect " + long, "connect to the daemon at xxx"},
	{"top --simulate", "top needs a terminal"},
	{"doctor -r replay:r", "cannot examine the recording in r; \"pleg-pipeline top -r replay:r\" shows"},
	{"doctor -r replay:r --calls 1s", "cannot examine the recording"},
	{"record --simulate FOREIGN", "it exists; name a new file"},
	{"record --simulate /nonexistent/r", "no such file or directory"},
	{"record -r /nonexistent/s DIR/unused", "the socket does not exist"},
	{"run -r replay:/nonexistent/r", "no such file"},
	{"run -r replay:FILE", "FILE: the recording is empty"},
	{"run -r replay:FOREIGN", "not a recording of pleg-pipeline"},
	{"run -r replay:NEWER", "it has format 99, this program reads format 3"},
	{"run -r replay:OLDER", "it has format 1, this program reads format 3"},
	{"run -r replay:CORRUPT", "line 2: invalid character"},
}

var long = strings.Repeat("x", 120)

func TestFailures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	words := []string{"DIR", dir}
	for name, text := range map[string]string{
		"FILE": "", "FOREIGN": "hello\n", "NEWER": `{"format":"pleg-pipeline recording","version":99}` + "\n",
		"OLDER":   `{"format":"pleg-pipeline recording","version":1}` + "\n",
		"CORRUPT": `{"format":"pleg-pipeline recording","version":3,"began":"2026-01-02T03:04:05Z"}` + "\nx\n",
	} {
		file := filepath.Join(t.TempDir(), strings.ToLower(name))
		kit.Must(t, os.WriteFile(file, []byte(text), 0o600))
		words = append(words, name, file)
	}
	_, silent := listen(t)
	l, stale := listen(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	kit.Must(t, err)
	defer busy.Close()
	web, other := &http.Server{Handler: http.NotFoundHandler()}, grpc.NewServer()
	words = append(words, "SILENT", silent, "STALE", stale, "BUSY", busy.Addr().String(),
		"HTTP", served(t, web.Serve, func() { _ = web.Close() }), "GRPC", served(t, other.Serve, other.Stop))
	for _, test := range failures {
		named := strings.NewReplacer(words...)
		code, stdout, stderr := run(t, strings.Fields(named.Replace(test.args))...)
		if want := named.Replace(test.want); code != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %d and %q", test.args, code, stdout, stderr, cli.ExitFailure, want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "unused")); err == nil {
		t.Error("an empty recording is left behind")
	}
}

// served serves on a socket until the test ends, and returns its path.
func served(t *testing.T, serve func(net.Listener) error, stop func()) string {
	t.Helper()
	l, path := listen(t)
	done := make(chan struct{})
	go func() { defer close(done); _ = serve(l) }()
	t.Cleanup(func() { stop(); <-done })
	return path
}

// listen makes a socket and returns its path.
func listen(t *testing.T) (net.Listener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	kit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, path
}

// TestEventsNeedLists has a runtime that answers and cannot list its pods. A daemon would wait.
func TestEventsNeedLists(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	simulated := start(t, newTranscript(), "simulate", "--socket", socket, "--fault", "ListPodSandbox/error")
	simulated.stderr.await(t, "simulated runtime serves")
	code, stdout, stderr := run(t, "events", "-r", "unix://"+socket)
	if code != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, "pleg has yet to be successful: list pods: ") {
		t.Errorf("exit code %d, stdout %q, stderr %q, want why there are no lists", code, stdout, stderr)
	}
	simulated.stopAndWait(t)
}

// TestErrorsDoNotMoveTheCursor has an error that quotes an argument.
func TestErrorsDoNotMoveTheCursor(t *testing.T) {
	t.Parallel()
	_, _, stderr := run(t, "run", "-r", "unix:///nonexistent/\x1b[2J\u202es")
	if strings.ContainsAny(stderr, "\x1b\u202e") || !strings.Contains(stderr, "/nonexistent/?[2J?s") {
		t.Errorf("stderr = %q, want ? for what cannot be printed", stderr)
	}
}
