package cli_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	plegv1 "github.com/pleg-pipeline/pleg-pipeline/api/pleg/v1"
	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/fleet"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/hostile"
)

// shown returns the text on an emulated terminal of 80x24.
func shown(term vt.MockTerm) string {
	var text strings.Builder
	for y := range 24 {
		for x := range 80 {
			text.WriteString(cmp.Or(term.GetCell(vt.Coord{X: vt.Col(x), Y: vt.Row(y)}).C, " "))
		}
		text.WriteByte('\n')
	}
	return trailing.ReplaceAllString(text.String(), "\n")
}

var trailing = regexp.MustCompile(" +\n")

// showing waits until an emulated terminal shows a text, matching until it matches a pattern.
func showing(t *testing.T, term vt.MockTerm, want string) {
	t.Helper()
	matching(t, term, regexp.MustCompile(regexp.QuoteMeta(want)))
}

func matching(t *testing.T, term vt.MockTerm, want *regexp.Regexp) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text := shown(term)
		if want.MatchString(text) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the terminal does not show %v:\n%s", want, text)
		}
	}
}

// onTerminal runs a command in a terminal emulator until the test ends it.
func onTerminal(t *testing.T, process cli.Process, args ...string) (term vt.MockTerm, end func()) {
	t.Helper()
	term = vt.NewMockTerm()
	out, stderr := newTranscript(), newTranscript()
	code := make(chan int)
	go func() {
		process.Args, process.Out, process.Err = args, out, stderr
		process.Terminal = func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(term) }
		code <- cli.Execute(t.Context(), process)
	}()
	return term, func() {
		t.Helper()
		term.SendRaw([]byte("q"))
		if got := <-code; got != cli.ExitOK || out.String() != "" {
			t.Errorf("exit code %d, stdout %q; stderr:\n%s", got, out, stderr)
		}
	}
}

// TestTop shows a daemon and its own pipeline.
func TestTop(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "pleg.sock")
	startDaemon(t, socket)
	for _, test := range []struct{ args, want string }{
		{"top --connect " + socket, "healthy"},
		{"top --filter = -r " + simulated(t, 2), "no pod matches the filter"},
	} {
		t.Run(test.args, func(t *testing.T) {
			term, end := onTerminal(t, cli.Process{}, strings.Fields(test.args)...)
			showing(t, term, test.want)
			showing(t, term, "healthy")
			showing(t, term, "pods 2")
			end()
		})
	}
}

// Lines that would destroy the screen come after it. They are not lost.
func TestTopHoldsLines(t *testing.T) {
	t.Parallel()
	term, stderr, began, code := vt.NewMockTerm(), newTranscript(), make(chan string, 1), make(chan int, 1)
	p := cli.Process{
		Args: []string{"top", "-v", "warn", "-r", simulated(t, 2, "--fault", "ContainerStatus/error")}, Out: io.Discard, Err: stderr,
		Terminal: func() (tcell.Screen, error) {
			began <- stderr.String()
			return tcell.NewTerminfoScreenFromTty(term)
		},
	}
	go func() { code <- cli.Execute(t.Context(), p) }()
	before := <-began
	matching(t, term, regexp.MustCompile(`since \S+ \((\d\d|[7-9])`)) // it has failed while the screen is shown
	if during := stderr.String(); during != before {
		t.Errorf("on the screen: %q", strings.TrimPrefix(during, before))
	}
	term.SendRaw([]byte("q"))
	if got, after := <-code, strings.TrimPrefix(stderr.String(), before); got != cli.ExitOK || !strings.Contains(after, "level=WARN msg=") {
		t.Errorf("exit code %d, after the screen: %q; before: %q", got, after, before)
	}
}

// A terminal that cannot be used.
func TestTopWithoutAScreen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := cli.Process{Dial: serveHostile(t, "", &hostile.Daemon{}), Terminal: func() (tcell.Screen, error) { return nil, errors.New("it is on fire") }}
		if code, stdout, stderr := execute(t, p, "top", "--connect", "socket"); code != cli.ExitFailure || stdout != "" || stderr != "pleg-pipeline: use the terminal: it is on fire\n" {
			t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
		}
	})
}

// TestTopAsksOnceASecond counts the questions for the status.
func TestTopAsksOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		process := with(nil)
		process.Dial = serveHostile(t, "", &hostile.Daemon{OnStatus: func(context.Context) (*plegv1.GetStatusResponse, error) {
			asked.Add(1)
			return &plegv1.GetStatusResponse{Status: &plegv1.PipelineStatus{Healthy: true}}, nil
		}})
		process.Terminal = func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(vt.NewMockTerm()) }
		s := startIn(t, process, newTranscript(), "top", "--connect", "socket")
		time.Sleep(10500 * time.Millisecond)
		s.stopAndWait(t)
		if n := asked.Load(); n < 10 || n > 11 {
			t.Errorf("asked %d times in 10.5 s", n)
		}
	})
}

func TestSilentNodes(t *testing.T) {
	for want, names := range map[string][]string{"0": nil, "3 (a, b, c)": {"a", "b", "c"}, "4 (a, b, c, ...)": {"a", "b", "c", "d"}} {
		if got := cli.SilentNodes(names); got != want {
			t.Errorf("silent: %q, want %q", got, want)
		}
	}
}

// What is shown of a pod of a cluster: its last status, or the names of its subject, what of it is not published, and
// the finding.
func TestPodOfAFleet(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	status := &pleg.PodStatus{
		UID: "u1", Name: "web-0", Namespace: "shop", IPs: []string{"10.0.0.7"},
		Containers: []*pleg.ContainerStatus{{ID: "c1", Name: "app", Attempt: 3, State: pleg.StateRunning}},
	}
	const of, holds = `{"uid":"u1","node":"n1","name":"web-0","namespace":"shop","state":`,
		`"ips":["10.0.0.7"],"running":1,"total":1,"restarts":3,"containers":[{"id":"c1","name":"app","attempt":3,"state":"running"}],`
	for want, pod := range map[string]fleet.Pod{
		of + `"unknown","severity":"warning",` + holds + `"currentAsOf":"2026-01-02T03:04:05Z"}`: {
			Node: "n1", Name: "not", Namespace: "these", Entry: cache.Entry{UID: "u1", Status: status, CurrentAsOf: at},
		},
		of + `"unknown","severity":"warning","running":0,"total":0,"restarts":0,"error":"too large","uninspected":true}`: {
			Node: "n1", Name: "web-0", Namespace: "shop", Entry: cache.Entry{UID: "u1"}, Partial: "too large",
		},
		of + `"hung","severity":"problem",` + holds + `"stale":true,"finding":{"cause":"hung container","severity":"problem","summary":"","evidence":"","advice":"",` +
			`"subject":"shop/web-0","what":"hangs","since":"2026-01-02T03:04:05Z"},"currentAsOf":"2026-01-02T03:04:05Z"}`: {
			Node: "n1", Entry: cache.Entry{UID: "u1", Status: status, CurrentAsOf: at},
			Finding: &fleet.Finding{Severity: "problem", Cause: "hung container", Subject: "shop/web-0", What: "hangs", Since: at},
		},
	} {
		if got, err := json.Marshal(cli.PodOfFleet(pod)); err != nil || string(got) != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
	}
}

// TestTopNamesASilentDaemon stops and ends a daemon while top shows it.
func TestTopNamesASilentDaemon(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "top-test-") //nolint:usetesting // so short that the first line breaks before the process
	kit.Must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	// The name of the folder has up to ten digits. On a line with a shorter path, the number of the process would not fit.
	socket, stat := filepath.Join(dir, strings.Repeat("s", max(1, 21-len(dir)))), filepath.Join(dir, fmt.Sprint(os.Getpid()), "stat")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	kit.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	kit.Must(t, os.Mkdir(filepath.Join(dir, "self"), 0o700))
	kit.Must(t, os.Mkdir(filepath.Dir(stat), 0o700))
	kit.Must(t, os.WriteFile(stat, []byte("1 (pleg-pipeline) S 1"), 0o600))
	process := with(nil)
	process.Proc = os.DirFS(dir)
	term, end := onTerminal(t, process, "top", "--connect", socket)
	showing(t, term, "waiting for the first answer")
	kit.Must(t, os.WriteFile(stat, []byte("1 (pleg-pipeline) T 1"), 0o600))
	showing(t, term, fmt.Sprintf("process %d is stopped (state T)\nDo: continue it (kill -CONT %[1]d)", os.Getpid()))
	kit.Must(t, l.Close())
	showing(t, term, "does not exist: to start a daemon, run pleg-pipeline run")
	showing(t, term, "\nDo: read its log (journalctl -u pleg-pipeline")
	end()
}
