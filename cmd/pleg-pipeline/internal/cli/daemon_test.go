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

// daemon runs "run --simulate" on a socket, quietly.
func daemon(t *testing.T, socket string, args ...string) *started {
	t.Helper()
	s := start(t, newTranscript(), append([]string{"run", "--simulate=2", "--churn-rate", "0", "--quiet", "--socket", socket, "-v", "warn"}, args...)...)
	s.stderr.await(t, "connected to")
	return s
}

// pods returns what a daemon knows once it has inspected so many pods.
func pods(t *testing.T, socket string, n int) []client.Pod {
	t.Helper()
	c, err := client.New(socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for ev, err := range c.Watch(t.Context(), client.WatchOptions{Replay: true, Bookmarks: true}) {
		if err != nil {
			t.Fatal(err)
		}
		_ = ev
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
	dir := t.TempDir()
	socket := filepath.Join(dir, "made", "pleg.sock") // the directory is made
	s := daemon(t, socket)
	if !strings.Contains(s.stderr.String(), "events --connect "+socket) {
		t.Errorf("stderr = %q, want how to connect", s.stderr)
	}
	info, err := os.Stat(socket)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("socket = %v, %v, want mode 0660", info.Mode(), err)
	}
	for _, p := range pods(t, socket, 2) {
		if p.Status == nil || time.Since(p.CurrentAsOf) > time.Minute {
			t.Errorf("pod = %+v, want a status", p)
		}
	}
	code, _, stderr := run(t, "run", "--simulate=1", "--socket", socket)
	if code != cli.ExitFailure || !strings.Contains(stderr, "--socket: ") || !strings.Contains(stderr, "in use") {
		t.Errorf("a second daemon: exit code %d, stderr %q, want the socket in use", code, stderr)
	}
	s.stop()
	s.ends(t, cli.ExitOK)
	if _, err := os.Stat(socket); err == nil {
		t.Errorf("%s is still there", socket)
	}
}

func TestRunRefusesBadSockets(t *testing.T) {
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
