package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/client"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

// startDaemon runs a daemon of a simulated runtime on a socket until the test ends. It
// returns when the daemon knows all its pods.
func startDaemon(t *testing.T, socket string) *runningCommand {
	t.Helper()
	s := start(t, newTranscript(), "run", "--simulate=2", "--churn-rate", "0", "--quiet", "--socket", socket, "-v", "warn")
	t.Cleanup(func() { s.stopAndWait(t) })
	s.stderr.await(t, "connected to")
	waitForPods(t, socket, 2)
	return s
}

// waitForPods waits until a daemon has inspected n pods, and returns them.
func waitForPods(t *testing.T, socket string, n int) []client.Pod {
	t.Helper()
	c := newClient(t, socket)
	for _, err := range c.Watch(t.Context(), client.WatchOptions{Replay: true, Bookmarks: true}) {
		if err != nil {
			t.Fatal(err)
		}
		known, err := c.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting := func(p client.Pod) bool { return p.Status == nil }
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
	s := startDaemon(t, socket)
	if !strings.Contains(s.stderr.String(), "events --connect "+socket) {
		t.Errorf("stderr = %q, want the command to connect", s.stderr)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("socket = %v, %v, want mode 0660", info.Mode(), err)
	}
	for _, p := range waitForPods(t, socket, 2) {
		if p.Status == nil || time.Since(p.CurrentAsOf) > time.Minute {
			t.Errorf("pod = %+v, want a status", p)
		}
	}
	code, _, stderr := run(t, "run", "--simulate=1", "--socket", socket)
	if code != cli.ExitFailure || !strings.Contains(stderr, "--socket: ") || !strings.Contains(stderr, "in use") {
		t.Errorf("second daemon: exit code %d, stderr %q, want that the socket is in use", code, stderr)
	}
	s.stopAndWait(t)
	if _, err := os.Stat(socket); err == nil {
		t.Errorf("%s still exists", socket)
	}
}

func TestRunRejectsBadSockets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ path, want string }{
		{"/nonexistent/deeper/s", "--socket: "},
		{t.TempDir(), "not a socket"},
		{"/tmp/" + strings.Repeat("x", 120), "a unix socket allows 107"},
	} {
		code, _, stderr := run(t, "run", "--simulate=1", "--socket", test.path)
		if code != cli.ExitFailure || !strings.Contains(stderr, test.want) {
			t.Errorf("--socket %s: exit code %d, stderr %q, want %q", test.path, code, stderr, test.want)
		}
	}
}
