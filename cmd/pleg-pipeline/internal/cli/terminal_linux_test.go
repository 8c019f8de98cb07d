package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	pipeline "github.com/pleg-pipeline/pleg-pipeline"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cri"
	"github.com/pleg-pipeline/pleg-pipeline/simruntime"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestVerdictFitsTheTerminal requires that "pods" breaks its verdict between words.
func TestVerdictFitsTheTerminal(t *testing.T) {
	user, terminal := openTerminal(t, 80)
	synctest.Test(t, func(t *testing.T) {
		node := simruntime.New(simruntime.Options{Seed: 1})
		s := kit.Simulate(t, node, pipeline.Options{}, cri.Options{})
		dial := serveDaemon(t, s.Pipeline.Pipeline)
		hangWeb(t, s)
		time.Sleep(10 * time.Second)
		cli.Execute(t.Context(), cli.Process{
			Args: []string{"pods", "--connect", "socket"}, Out: io.Discard, Err: terminal, Dial: dial, Getenv: func(string) string { return "" },
		})
	})
	text := make([]byte, 1<<10)
	n, err := user.Read(text)
	kit.Must(t, err)
	const want = "pleg-pipeline: PROBLEM: shop/web-0 hangs since 00:00 (9.0s) in ContainerStatus\r\n  of nginx\r\n"
	if got := string(text[:n]); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Text is colored on a terminal, unless its user does not want it. Its columns and lines fit the terminal.
func TestColors(t *testing.T) {
	t.Parallel()
	socket := socketPath(t)
	startDaemon(t, socket)
	for environment, want := range map[string]bool{"TERM=xterm": true, "TERM=dumb": false, "NO_COLOR=1": false} {
		name, value, _ := strings.Cut(environment, "=")
		for args, shown := range map[string]struct {
			columns            uint16
			until, color, fits string
		}{
			"pods --connect " + socket:                           {200, "ready", "\x1b[32m", "NAMESPACE  POD "},
			"events --replay --follow=false --connect " + socket: {60, "replayed", "\x1b[32m", " POD                   CONTAINER\r\n"},
			"doctor -r /none/socket":                             {60, "Runtime", "\x1b[31m", ": the runtime is stopped: /none/socket: the socket\r\n  does not exist\r\n  Do: "},
		} {
			user, terminal := openTerminal(t, shown.columns)
			p := with(map[string]string{name: value})
			p.Args, p.Out, p.Err = strings.Fields(args), terminal, io.Discard
			code := cli.Execute(t.Context(), p)
			var text []byte
			for part := make([]byte, 4<<10); code != cli.ExitFailure && !strings.Contains(string(text), shown.until); { // a line at a time
				n, err := user.Read(part)
				kit.Must(t, err)
				text = append(text, part[:n]...)
			}
			if got := strings.Contains(string(text), shown.color); got != want || !strings.Contains(string(text), shown.fits) {
				t.Errorf("%s, %s: exit code %d, in color %v, want %v and %q:\n%q", environment, args, code, got, want, shown.fits, text)
			}
		}
	}
}

// The events of a daemon are colored and fit the terminal, too.
func TestDaemonOnATerminal(t *testing.T) {
	t.Parallel()
	user, terminal := openTerminal(t, 60)
	s := startIn(t, with(map[string]string{"TERM": "xterm"}), terminal, "run", "--simulate=1", "--churn-rate", "0")
	lines := bufio.NewReader(user)
	header, _ := lines.ReadString('\n')
	first, err := lines.ReadString('\n')
	if kit.Must(t, err); header != "TIME      EVENT             POD                   CONTAINER\r\n" || !strings.Contains(first, "\x1b[32mContainerStarted\x1b[0m  ") {
		t.Errorf("%q, %q", header, first)
	}
	s.stopAndWait(t)
}

// openTerminal returns a terminal with a number of columns, and the text that its user sees.
func openTerminal(t *testing.T, columns uint16) (user, terminal *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("there is no terminal here:", err)
	}
	t.Cleanup(func() { _ = user.Close() })
	number, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	kit.Must(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return user, terminal
}

// /dev/full exists only on Linux.
func TestFullDiskIsReported(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	kit.Must(t, err)
	defer full.Close()
	none, one := simulated(t, 0), simulated(t, 1)
	for _, args := range []string{
		"run -r " + none, "run --no-headers -r " + one, "run --print-config", "events -r " + none, "events --no-headers --replay -r " + one,
		"pods -r " + none, "pods --no-headers -r " + one, "doctor -r /none/s", "doctor -r /none/s --npd",
	} {
		s := start(t, full, strings.Fields(args)...)
		s.ends(t, cli.ExitFailure)
		if want := "write output: "; !strings.Contains(s.stderr.String(), want) {
			t.Errorf("%s: stderr = %q, want %q", args, s.stderr, want)
		}
	}
}
