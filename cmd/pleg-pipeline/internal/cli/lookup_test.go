package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
)

func TestLookup(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	startDaemon(t, socket)
	_, pods, _ := run(t, "pods", "--connect", socket, "-o", "json")
	var pod struct {
		Name       string
		Containers []struct{ ID string }
	}
	if err := json.NewDecoder(strings.NewReader(pods)).Decode(&pod); err != nil || len(pod.Containers) == 0 {
		t.Fatalf("pods: %v\n%s", err, pods)
	}
	id := pod.Containers[0].ID
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{id}, cli.ExitOK, "/" + pod.Name},
		{[]string{id, "-o", "json"}, cli.ExitOK, `"podName":"` + pod.Name + `"`},
		{[]string{id[:13]}, cli.ExitOK, "/" + pod.Name},
		{[]string{"containerd://" + id + "\n"}, cli.ExitOK, "/" + pod.Name},
		{[]string{"unknown"}, cli.ExitFailure, "look up container unknown: no container of this node"},
		{[]string{"--pid", "1"}, cli.ExitFailure, "look up process 1: no container of this node"},
	} {
		code, stdout, stderr := run(t, append([]string{"lookup", "--connect", socket}, test.args...)...)
		if code != test.code || !strings.Contains(stdout+stderr, test.want) {
			t.Errorf("lookup %v: exit code %d, %q, %q; want %d, %q", test.args, code, stdout, stderr, test.code, test.want)
		}
	}
	r, closed := io.Pipe()
	_ = r.Close()
	for _, format := range []string{"text", "json"} {
		s := start(t, closed, "lookup", id, "--connect", socket, "-o", format)
		if s.ends(t, cli.ExitOK); s.stderr.String() != "" {
			t.Errorf("to a closed pipe as %s: stderr %q", format, s.stderr)
		}
	}
}

// TestNoDaemon runs commands that need a daemon where none runs, or where one does not take a connection.
func TestNoDaemon(t *testing.T) {
	t.Parallel()
	const needed = ": to start one, run pleg-pipeline run --socket /run/pleg-pipeline/pleg.sock; --connect names the socket of another"
	for _, test := range []struct {
		args     string
		variable string // PLEG_PIPELINE_SOCKET
		err      error
		want     string
	}{
		{"lookup 7d1f", "", syscall.ENOENT, "there is no daemon at /run/pleg-pipeline/pleg.sock" + needed},
		{"events --since 3c5e:1", "", syscall.ECONNREFUSED, "no daemon answers at /run/pleg-pipeline/pleg.sock" + needed},
		{"pods", "", syscall.EACCES, "connect to the daemon at /run/pleg-pipeline/pleg.sock: permission denied: only root (sudo) and the owner and group of the socket may connect"},
		{"pods", "", &net.OpError{Op: "dial", Err: syscall.EAGAIN}, "connect to the daemon at /run/pleg-pipeline/pleg.sock: resource temporarily unavailable"},
		{"pods", "", errors.New("broken"), "connect to the daemon at /run/pleg-pipeline/pleg.sock: broken"},
		{"pods", "", os.ErrDeadlineExceeded, "connect to the daemon at /run/pleg-pipeline/pleg.sock: the daemon does not answer"},
		{"pods", "unix:///b", syscall.ENOENT, "connect to the daemon at /b: the socket does not exist: to start a daemon, run pleg-pipeline run --socket /b"},
		{"pods --connect unix:///a", "/b", syscall.ECONNREFUSED, "connect to the daemon at /a: it has ended"},
	} {
		p := with(map[string]string{"PLEG_PIPELINE_SOCKET": test.variable})
		dialed := ""
		p.Dial = func(_ context.Context, socket string) (net.Conn, error) {
			dialed = socket
			return nil, test.err
		}
		code, _, text := execute(t, p, strings.Fields(test.args)...)
		if code != cli.ExitFailure || text != "pleg-pipeline: "+test.want+"\n" || !strings.Contains(text, " at "+dialed+":") {
			t.Errorf("%s: exit code %d and %q after %s, want %d and %q", test.args, code, text, dialed, cli.ExitFailure, test.want)
		}
	}
}
