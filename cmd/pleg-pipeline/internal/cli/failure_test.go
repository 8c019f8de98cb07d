package cli_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// failures are correct command lines that cannot work, with the texts that the error must contain.
// A word in capitals stands for a file or an address.
var failures = []struct{ args, want string }{
	{"run -r tcp://127.0.0.1:80", "is not a unix socket: want unix:///"},
	{"run -r unix:///nonexistent/s", "the socket does not exist\n  cause: "},
	{"run -r DIR", "it is a directory, not a socket"},
	{"run -r DIR", "the address is from --runtime-endpoint; name another one with --runtime-endpoint"},
	{"run -r tcp://127.0.0.1:80", "(from --runtime-endpoint)"},
	{"run --wait-for-runtime -r tcp://127.0.0.1:80", "(from --runtime-endpoint)"},
	{"run --simulate --listen BUSY", "--listen: "},
	{"run --simulate --health-listen BUSY", "--health-listen: "},
	{"run --simulate --listen 0 --web-config /nonexistent/web.yaml", "--web-config: "},
	{"run --simulate=1 --socket /nonexistent/deeper/s", "--socket: "},
	{"run --simulate=1 --socket DIR/s --incident-dir /nonexistent/deeper/d", "--incident-dir: "},
	{"simulate --socket SILENT", "listen on SILENT"},
	{"events --connect /nonexistent/s", "the socket does not exist: to start a daemon, run pleg-pipeline run --socket /nonexistent/s"},
	{"pods --connect unix://STALE", "it has ended"},
	{"events --connect FILE", "connect to the daemon at FILE"},
	{"events --no-headers --fleet nats://BUSY --cluster a/b", `watch fleet: `},
	{"run --simulate=1 --quiet --nats nats://BUSY --cluster a/b", "--nats: "},
	{"pods --fleet nats://BUSY --cluster c --tlsca /none/ca", "--fleet: connect to NATS: "},
	{"pods --fleet nats://BUSY --cluster c --nats-context /none/context --creds /none/creds", "--nats-context: open /none/context: "},
	{"run --simulate=1 --quiet --nats nats://BUSY --cluster c --creds /none/creds", "--nats: connect to NATS: "},
	{"top -r /s", "top needs a terminal"},
	{"doctor --calls 1s -r /nonexistent/s", "the socket does not exist"},
	{"doctor -r replay:r", "cannot examine the recording in r; \"pleg-pipeline top -r replay:r\" shows"},
	{"record -r /s FILE", "it exists; name a new file"},
	{"record -r /s /nonexistent/r", "no such file or directory"},
	{"record -r DIR FILE/r", "record: open FILE/r"},
	{"record -r /nonexistent/s DIR/unused", "the socket does not exist"},
	{"run -r replay:/nonexistent/r", "no such file"},
}

// temporary matches the folder of a simulated runtime.
var temporary = regexp.MustCompile(`unix:///\S*/pleg-pipeline-\d+/`)

func TestFailures(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "file")
	kit.Must(t, os.WriteFile(file, nil, 0o600))
	_, silent := kit.Socket(t)
	stale := kit.AbandonedSocket(t)
	busy, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	kit.Must(t, err)
	defer busy.Close()
	texts := []string{"DIR", dir, "FILE", file, "SILENT", silent, "STALE", stale, "BUSY", busy.Addr().String()}
	named := strings.NewReplacer(texts...)
	slices.Reverse(texts)
	generic := strings.NewReplacer(texts...)
	var all strings.Builder
	for _, test := range failures {
		code, stdout, stderr := run(t, strings.Fields(named.Replace(test.args))...)
		if want := named.Replace(test.want); code != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q, want %d and %q", test.args, code, stdout, stderr, cli.ExitFailure, want)
		}
		fmt.Fprintf(&all, "$ %s\n%s\n", test.args, temporary.ReplaceAllString(generic.Replace(stderr), "unix:///TMP/"))
	}
	kit.Golden(t, "testdata/failures.golden", all.String())
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("%v is left behind", files)
	}
}

// TestEventsNeedLists uses a runtime that answers and cannot list its pods. A daemon would wait.
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

// TestErrorsDoNotMoveTheCursor causes an error that quotes an argument.
func TestErrorsDoNotMoveTheCursor(t *testing.T) {
	t.Parallel()
	_, _, stderr := run(t, "run", "-r", "unix:///nonexistent/\x1b[2J\u202es")
	if strings.ContainsAny(stderr, "\x1b\u202e") || !strings.Contains(stderr, "/nonexistent/?[2J?s") {
		t.Errorf("stderr = %q, want ? for what cannot be printed", stderr)
	}
}
