package cli_test

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// socketPath returns a path for a socket that a daemon is to make.
func socketPath(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "pleg.sock")
}

// decode returns the events in a JSON output.
func decode(t *testing.T, text string) []pleg.Event {
	t.Helper()
	var all []pleg.Event
	for line := range strings.Lines(text) {
		var ev pleg.Event
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		all = append(all, ev)
	}
	return all
}

func TestEventsReplayOfDaemon(t *testing.T) {
	socket := socketPath(t)
	d := daemon(t, socket)
	pods(t, socket, 2)
	out := newTranscript()
	s := start(t, out, "events", "--connect", socket, "--replay", "--no-sandboxes", "-o", "json")
	out.await(t, "Synced")
	s.stop()
	s.ends(t, cli.ExitOK)
	all := decode(t, out.String())
	if len(all) != 5 { // two pods of two containers
		t.Errorf("%d events, want 4 and a Synced:\n%s", len(all), out)
	}
	for _, ev := range all[:len(all)-1] {
		if ev.Type != pleg.ContainerStarted || ev.Sandbox || !ev.Replayed {
			t.Errorf("event %+v, want a container that was started", ev)
		}
	}
	position := regexp.MustCompile(`context canceled: go on with --since ([0-9a-f]{16}:[0-9]+)\n`).FindStringSubmatch(s.stderr.String())
	if position == nil {
		t.Fatalf("stderr = %q, want a position", s.stderr)
	}

	again := newTranscript()
	s = start(t, again, "events", "--connect", socket, "--since", position[1], "-o", "json")
	again.await(t, "Synced")
	s.stop()
	s.ends(t, cli.ExitOK)
	if all := decode(t, again.String()); len(all) != 1 {
		t.Errorf("behind the end = %v, want a Synced alone", all)
	}
	d.stop()
	d.ends(t, cli.ExitOK)
}

func TestEventsFiltersAndTemplate(t *testing.T) {
	out := newTranscript()
	s := start(t, out, "events", "--simulate=5", "--churn-rate", "50", "--type", "ContainerDied,ContainerRemoved",
		"-o", "go-template={{.type}} {{.podNamespace}} {{if .sandbox}}sandbox{{else}}{{.containerName}}{{end}}", "--no-sandboxes")
	out.await(t, "ContainerRemoved")
	s.stop()
	s.ends(t, cli.ExitOK)
	if line := regexp.MustCompile(`^Container(Died|Removed) [a-z-]+ [a-z0-9-]+$`); !line.MatchString(strings.Split(out.String(), "\n")[0]) {
		t.Errorf("output = %q, want lines of the template and no marks", out)
	}
	if strings.Contains(out.String(), "sandbox") || strings.Contains(out.String(), "Started") {
		t.Errorf("output = %q, want what was asked for", out)
	}
}

// TestEventsOwnPipelineBeginsNow has the pods that are there already, three of
// two containers and a sandbox, be no events.
func TestEventsOwnPipelineBeginsNow(t *testing.T) {
	r, w := io.Pipe()
	s := start(t, w, "events", "--simulate=3", "--churn-rate", "20", "-o", "json")
	line := lines(t, bufio.NewReader(r), func(string) bool { return true })
	if first := decode(t, line)[0]; first.Seq <= 9 || first.Replayed {
		t.Errorf("the first event is %+v, want one behind the 9 of the first list", first)
	}
	_ = r.Close()
	s.ends(t, cli.ExitOK)
	if strings.Contains(s.stderr.String(), "--since") {
		t.Errorf("stderr = %q, want no position that nobody knows", s.stderr)
	}
}

func TestEventsSurviveRestartOfDaemon(t *testing.T) {
	socket := socketPath(t)
	d := daemon(t, socket)
	pods(t, socket, 2)
	out := newTranscript()
	s := start(t, out, "events", "--connect", socket, "--replay", "-o", "json")
	out.await(t, "Synced")
	d.stop()
	d.ends(t, cli.ExitOK)
	s.stderr.await(t, "lost the daemon (")
	refuse(t, socket, 3)
	d = daemon(t, socket)
	s.stderr.await(t, "the daemon is back: what happened meanwhile is not known, it was restarted; the present state follows")
	out.await(t, "OtherEpoch")
	s.stop()
	s.ends(t, cli.ExitOK)
	if got := strings.Count(s.stderr.String(), "lost the daemon"); got != 1 {
		t.Errorf("said %d times that the daemon is lost, want once:\n%s", got, s.stderr)
	}
	d.stop()
	d.ends(t, cli.ExitOK)
}

// refuse takes so many connections in place of a daemon, and drops them.
func refuse(t *testing.T, socket string, times int) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range times {
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
	}
}

func TestEventsFindDaemon(t *testing.T) {
	socket := socketPath(t)
	d := daemon(t, socket)
	pods(t, socket, 2)
	out := newTranscript()
	s := startWith(t, out, map[string]string{"PLEG_PIPELINE_SOCKET": socket}, "events", "--replay")
	out.await(t, "Synced")
	s.stop()
	s.ends(t, cli.ExitOK)
	d.stop()
	d.ends(t, cli.ExitOK)
}

func TestEventsRefuseBadSockets(t *testing.T) {
	stale, path := listen(t)
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = stale.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ socket, want string }{
		{"/nonexistent/s", "the socket does not exist: start one with pleg-pipeline run --socket /nonexistent/s"},
		{path, "nobody answers: it has ended"},
		{file, "connect to the daemon at " + file},
		{strings.Repeat("x", 200), "connect to the daemon at xxx"},
	} {
		for _, command := range []string{"events", "pods"} {
			code, stdout, stderr := run(t, command, "--connect", test.socket)
			if code != cli.ExitFailure || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("%s --connect %s = %d, stdout %q, stderr %q, want %q", command, test.socket, code, stdout, stderr, test.want)
			}
		}
	}
}

func TestEventsEndWhenReaderLeavesQuietDaemon(t *testing.T) {
	socket := socketPath(t)
	d := daemon(t, socket)
	pods(t, socket, 2)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := start(t, w, "events", "--connect", socket, "--replay")
	lines(t, bufio.NewReader(r), func(line string) bool { return strings.Contains(line, "Synced") })
	_ = r.Close()
	s.ends(t, cli.ExitOK)
	d.stop()
	d.ends(t, cli.ExitOK)
}

func TestEventsEndWhenNobodyReads(t *testing.T) {
	r, w := io.Pipe()
	s := start(t, w, "events", "--simulate=1", "--replay")
	s.stderr.await(t, "connected to")
	lines(t, bufio.NewReaderSize(r, 16), func(string) bool { return true })
	s.stop()
	s.ends(t, cli.ExitOK)
	_ = r.Close() // lets the blocked write go
}
