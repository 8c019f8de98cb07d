package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// serveHostile serves a daemon and returns how to dial it.
func serveHostile(t *testing.T, name string, h *hostile.Daemon) func(context.Context, string) (net.Conn, error) {
	if name != "no bytes" {
		dial := hostile.Serve(t, h)
		return func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }
	}
	return func(context.Context, string) (net.Conn, error) {
		conn, silent := net.Pipe()
		t.Cleanup(func() { _ = silent.Close() })
		go func() { _, _ = io.Copy(io.Discard, silent) }()
		return conn, nil
	}
}

// countedConn is a connection that tells when it is closed.
type countedConn struct {
	net.Conn

	closed func()
}

func (c countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// checkPrinted checks the text that a terminal gets.
func checkPrinted(t *testing.T, where, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			t.Fatalf("%s has %q", where, r)
		}
	}
	if strings.Contains(text, "\npleg-pipeline: all is well") {
		t.Errorf("%s has a forged line", where)
	}
}

// TestHostileDaemons runs each command with each daemon. The command must end, with one line
// that says why, or continue until it is stopped; its output must not control a terminal.
func TestHostileDaemons(t *testing.T) {
	commands := map[string][]string{
		"events":         {"events", "--replay"},
		"events as JSON": {"events", "--replay", "-o", "json"},
		"events by name": {"events", "--replay", "-o", "name"},
		"pods":           {"pods"},
		"pods as JSON":   {"pods", "-o", "json"},
		"top":            {"top"},
		"doctor":         {"doctor"},
		"doctor as JSON": {"doctor", "-o", "json"},
		"doctor --npd":   {"doctor", "--npd"},
		"lookup":         {"lookup", strings.Repeat("7d", 32)},
		"lookup as JSON": {"lookup", "--cgroup", "7", "-o", "json"},
	}
	for daemon := range hostileDaemons() {
		for command, args := range commands {
			t.Run(daemon+"/"+command, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { runHostile(t, daemon, args) })
			})
		}
	}
}

// hostileEnvironment names a runtime that does not exist, for the doctor.
var hostileEnvironment = map[string]string{"CONTAINER_RUNTIME_ENDPOINT": "unix:///nonexistent/cri.sock"}

// Commands are watched for longer than each deadline; top, which sets none, for some waits between
// two connections.
const (
	watchFor = 100 * time.Second
	watchTop = 30 * time.Second
)

func runHostile(t *testing.T, daemon string, args []string) {
	dial := serveHostile(t, daemon, hostileDaemons()[daemon])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var open atomic.Int32
	counted := func(ctx context.Context, socket string) (net.Conn, error) {
		conn, err := dial(ctx, socket)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return countedConn{conn, sync.OnceFunc(func() { open.Add(-1) })}, nil
	}
	out, stderr := newTranscript(), newTranscript()
	term := vt.NewMockTerm()
	code := make(chan int, 1)
	process := cli.Process{
		Args: append(args, "--connect", "socket"), Out: out, Err: stderr, Dial: counted,
		Getenv:   func(name string) string { return hostileEnvironment[name] },
		Pressure: fstest.MapFS{}, Cgroups: fstest.MapFS{},
	}
	if args[0] == "top" {
		process.Terminal = func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(term) }
	}
	go func() { code <- cli.Execute(ctx, process) }()
	ended, unhealthy := false, args[0] == "doctor" // the doctor has no runtime
	watched := watchFor
	if args[0] == "top" {
		watched = watchTop
	}
	select {
	case got := <-code:
		ended = true
		if got != cli.ExitOK && got != cli.ExitFailure && (!unhealthy || got != cli.ExitUnhealthy) {
			t.Errorf("exit code %d", got)
		}
		if got == cli.ExitFailure && !unhealthy && strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("ended with more than a line: %s", stderr)
		}
	case <-time.After(watched):
	}
	checkPrinted(t, "the screen", shown(term))
	if term.GetTitle() != "" || term.Bells() > 0 {
		t.Errorf("the terminal has the title %q, and %d bells", term.GetTitle(), term.Bells())
	}
	cancel()
	if !ended {
		if got := <-code; got != cli.ExitOK {
			t.Errorf("exit code %d after Ctrl-C", got)
		}
	}
	if synctest.Wait(); open.Load() > 0 {
		t.Errorf("%d connections are left", open.Load())
	}
	checkPrinted(t, "stdout", out.String())
	checkPrinted(t, "stderr", stderr.String())
	const another = "pleg-pipeline: not a daemon of this version: wait for the first list: watch: receive: unknown service pleg.v1.PLEG\n"
	if daemon == "another service" && args[0] == "pods" && stderr.String() != another {
		t.Errorf("stderr %q, want that it is no daemon", stderr)
	}
	for line := range strings.Lines(stderr.String()) {
		if len(line) > 10<<10 {
			t.Errorf("a line of %d bytes on stderr", len(line))
		}
	}
	if args[len(args)-1] == "json" {
		for values := json.NewDecoder(strings.NewReader(out.String())); ; {
			var value json.RawMessage
			if err := values.Decode(&value); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Errorf("not JSON: %v: %.200s", err, out)
				break
			}
		}
	}
	if out.String() == "" && stderr.String() == "" && !ended && args[0] != "top" {
		t.Error("says nothing")
	}
}
