package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gdamore/tcell/v3"
	"github.com/gdamore/tcell/v3/vt"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/endpoint"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestDoctorAsPlugin requires one line, and the exit codes of the node-problem-detector.
func TestDoctorAsPlugin(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no problem": {[]string{"--simulate=3", "--churn-rate", "0", "--call-timeout", "20s"}, 0, "OK: "},
		"a problem":  {[]string{"-r", "/nonexistent/s"}, 1, "PROBLEM: the runtime is stopped: "},
		"unknown":    {[]string{"--config", "/nonexistent/c"}, 2, "could not examine the node: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, _ := run(t, append([]string{"doctor", "--npd"}, test.args...)...)
			ok := code == test.code && strings.HasPrefix(stdout, test.want) || test.code == 0 && isSlow(stdout)
			if !ok || strings.Count(stdout, "\n") != 1 {
				t.Errorf("exit code %d, output %q, want %d and one line %q", code, stdout, test.code, test.want)
			}
		})
	}
}

// isSlow reports whether the doctor found that the runtime is slow: on a busy machine, the
// simulated runtime may be.
func isSlow(report string) bool {
	verdict, _, _ := strings.Cut(report, "\n")
	return strings.Contains(verdict, " takes ") || strings.Contains(verdict, " take ") || strings.Contains(verdict, "waited for the disk")
}

// TestDoctorMeasuresCalls requires a table, and the same as JSON.
func TestDoctorMeasuresCalls(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{"text": "| ContainerStatus | 16 |", "json": `"method": "ContainerStatus"`} {
		code, stdout, stderr := run(t, "doctor", "--simulate=3", "--churn-rate", "0", "--calls", "10ms", "-o", format)
		if code != cli.ExitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, output %q, stderr %q, want %q", code, stdout, stderr, want)
		}
	}
}

// TestPluginConfiguration requires that the example for the node-problem-detector calls
// the doctor with flags that exist.
func TestPluginConfiguration(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/node-problem-detector.json")
	kit.Must(t, err)
	var config struct {
		Rules []struct{ Args []string }
	}
	if err := json.Unmarshal(text, &config); err != nil || len(config.Rules) != 1 {
		t.Fatalf("%v, %d rules, want one", err, len(config.Rules))
	}
	code, stdout, _ := run(t, append(config.Rules[0].Args, "-r", "/nonexistent/s")...)
	if code != 1 || !strings.HasPrefix(stdout, "PROBLEM: ") {
		t.Errorf("exit code %d, output %q, want a problem", code, stdout)
	}
}

// TestDoctorAsksBoth examines a runtime beside a daemon that works, has ended or is frozen, and
// without a daemon.
func TestDoctorAsksBoth(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	works, dead, frozen, cri := filepath.Join(dir, "works"), filepath.Join(dir, "dead"), filepath.Join(dir, "frozen"), filepath.Join(dir, "cri")
	startDaemon(t, works)
	for socket, keep := range map[string]bool{dead: false, frozen: true} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
		kit.Must(t, err)
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { _ = l.Close() })
		if !keep {
			kit.Must(t, l.Close())
		}
	}
	simulated := start(t, io.Discard, "simulate", "--socket", cri, "--pods", "2", "--churn-rate", "0")
	simulated.stderr.await(t, "serving")
	own := fmt.Sprintf("%d/stat", os.Getpid())
	for name, test := range map[string]struct {
		args  string
		state string // of the process that listens on the socket
		want  []string
	}{
		"a daemon":        {"--connect " + works, "S", []string{"(from the daemon)", "Daemon      " + works + ", OK: "}},
		"a dead daemon":   {"--connect " + dead, "S", []string{"WARNING: the daemon at " + dead + " does not answer: no daemon answers: it has ended; the runtime is well"}},
		"a silent daemon": {"--connect " + frozen, "S", []string{"does not answer: it accepts connections, but sent nothing within 2s; the runtime is well"}},
		"a frozen daemon": {"--connect " + frozen, "T", []string{
			fmt.Sprintf("does not answer: its process %d is stopped (state T); the runtime is well", os.Getpid()), fmt.Sprintf("Do: continue it (kill -CONT %d)", os.Getpid()),
		}},
		"a runtime alone": {"-r " + cri, "S", []string{"OK: ", "Daemon      not asked: the command line names a runtime"}},
	} {
		t.Run(name, func(t *testing.T) {
			process := with(map[string]string{endpoint.EnvEndpoint: cri})
			process.Proc = fstest.MapFS{"self/stat": {}, own: {Data: []byte("1 (x) " + test.state + " 1")}}
			code, stdout, stderr := execute(t, process, append([]string{"doctor", "--call-timeout", "20s"}, strings.Fields(test.args)...)...)
			for _, want := range test.want {
				if !isSlow(stdout) && (code != cli.ExitOK || !strings.Contains(stdout, want)) {
					t.Errorf("exit code %d, %q, %q; want %q", code, stdout, stderr, want)
				}
			}
		})
	}
}

// TestStoppedDaemon requires that no command waits for a daemon that is stopped by a signal.
func TestStoppedDaemon(t *testing.T) {
	t.Parallel()
	frozen := filepath.Join(t.TempDir(), "frozen")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: frozen})
	kit.Must(t, err)
	defer l.Close()
	process := with(nil)
	process.Proc = fstest.MapFS{"self/stat": {}, fmt.Sprintf("%d/stat", os.Getpid()): {Data: []byte("1 (x) T 1")}}
	process.Terminal = func() (tcell.Screen, error) { return tcell.NewTerminfoScreenFromTty(vt.NewMockTerm()) }
	want := fmt.Sprintf("the daemon at %s does not answer: its process %d is stopped (state T); continue it (kill -CONT %[2]d)", frozen, os.Getpid())
	for _, args := range []string{"pods", "events", "top", "lookup --pid 1"} {
		code, stdout, stderr := execute(t, process, append(strings.Fields(args), "--connect", frozen)...)
		if code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %q, %q; want 1 and %q", args, code, stdout, stderr, want)
		}
	}
}
