package cli_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// process is the program in its own process.
type process struct {
	cmd    *exec.Cmd
	stdout io.ReadCloser
	stderr *transcript
	// temporary is its folder for temporary files.
	temporary string
}

// spawn starts the program. Its tests do not run in parallel: some need two signals
// shortly after each other.
func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	p := newProcess(t, args...)
	var err error
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	kit.Must(t, p.cmd.Start())
	return p
}

// newProcess is the program before its start.
func newProcess(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	kit.Must(t, err)
	p := &process{cmd: exec.CommandContext(t.Context(), program, args...), stderr: newTranscript(), temporary: t.TempDir()}
	// Without GORACE a program that the race detector checks sleeps for a second at its end.
	p.cmd.Env = []string{asProgram + "=1", "TMPDIR=" + p.temporary, "GORACE=atexit_sleep_ms=0"}
	p.cmd.Stderr = p.stderr
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	kit.Must(t, p.cmd.Process.Signal(s))
}

func TestSignalsEndInOrder(t *testing.T) {
	for _, test := range []struct {
		signal syscall.Signal
		want   string
	}{
		{syscall.SIGINT, "interrupt signal received after"},
		{syscall.SIGTERM, "terminated signal received after"},
		{syscall.SIGHUP, "hangup signal received after"},
	} {
		if signal.Ignored(test.signal) {
			continue // the child inherits the ignored signal, as under nohup
		}
		p := spawn(t, "run", "--simulate=2")
		out := bufio.NewReader(p.stdout)
		readUntil(t, out, func(line string) bool { return strings.Contains(line, "(sandbox)") })
		p.signal(t, test.signal)
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0; stderr:\n%s", test.signal, err, p.stderr)
		}
		if left, err := os.ReadDir(p.temporary); err != nil || len(left) > 0 {
			t.Errorf("%v: %v is left behind, %v", test.signal, left, err)
		}
		last := regexp.MustCompile(`[^\n]*\n$`).FindString(p.stderr.String())
		if !strings.Contains(last, test.want) {
			t.Errorf("%v: stderr ends with %q, want %q", test.signal, last, test.want)
		}
	}
}

// Under nohup(1), the end of the terminal does not end the program.
func TestNohup(t *testing.T) {
	p := newProcess(t, "-c", `trap "" HUP; exec "$0" "$@"`, os.Args[0], "run", "--simulate=1")
	p.cmd.Path = "/bin/sh"
	kit.Must(t, p.cmd.Start())
	p.stderr.await(t, "connected to")
	p.signal(t, syscall.SIGHUP)
	p.signal(t, syscall.SIGTERM)
	if err := p.cmd.Wait(); err != nil || !strings.Contains(p.stderr.String(), "terminated signal received after") {
		t.Errorf("%v, stderr %q, want the end by SIGTERM", err, p.stderr)
	}
}

// Who is not root is told to try sudo.
func TestSudo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	path := filepath.Join(t.TempDir(), "denied.yaml")
	kit.Must(t, os.WriteFile(path, nil, 0))
	const advice = "Run 'pleg-pipeline run --help' for usage.\n"
	for args, want := range map[string]string{
		"--config-file " + path: "pleg-pipeline: --config-file: open " + path + ": permission denied; root may be needed: try sudo\n" + advice,
		"--inspectors 0":        "pleg-pipeline: --inspectors must be at least 1, got 0\n" + advice,
	} {
		p := newProcess(t, append([]string{"run"}, strings.Fields(args)...)...)
		p.cmd.Path, p.cmd.Dir = "/proc/self/exe", "/" // another user does not find the binary of the test
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		_ = p.cmd.Run()
		if code := p.cmd.ProcessState.ExitCode(); code != 2 || p.stderr.String() != want {
			t.Errorf("exit code %d, stderr %q, want %q", code, p.stderr, want)
		}
	}
	p := newProcess(t, "record", "-r", "replay:testdata/short.jsonl", "/sys/r")
	_ = p.cmd.Run()
	if text := p.stderr.String(); !strings.Contains(text, "record: open /sys/r: ") || strings.Contains(text, "sudo") {
		t.Errorf("as root: stderr %q", text)
	}
}

// GOGC overrides the program's own value.
func TestGOGC(t *testing.T) {
	for given, want := range map[string]string{"": "\n50\n", "70": "\n70\n"} {
		p := newProcess(t, "version")
		p.cmd.Env = append(p.cmd.Env, "GOGC="+given, asProgram+"=GOGC")
		if text, err := p.cmd.Output(); err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("GOGC=%s: %v, %q, want %q at the end", given, err, text, want)
		}
	}
}

// The program reads its own environment.
func TestEnvironment(t *testing.T) {
	for variable, want := range map[string]string{
		"PLEG_PIPELINE_A=1": "environment variable PLEG_PIPELINE_A: no flag has this name", "PLEG_PIPELINE_INSPECTORS=0": "--inspectors must be at least 1, got 0",
	} {
		p := newProcess(t, "run", "--print-config")
		p.cmd.Env = append(p.cmd.Env, variable)
		if _ = p.cmd.Run(); p.cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(p.stderr.String(), "pleg-pipeline: "+want) {
			t.Errorf("%s: exit code %d, stderr %q, want %q", variable, p.cmd.ProcessState.ExitCode(), p.stderr, want)
		}
	}
}

// TestSignalSentTwiceIsOne sends signals as "timeout 10 pleg-pipeline run" does.
func TestSignalSentTwiceIsOne(t *testing.T) {
	for range 20 {
		p := spawn(t, "run", "--simulate=2", "--no-headers")
		readUntil(t, bufio.NewReader(p.stdout), func(string) bool { return true })
		began, apart := time.Now(), time.Duration(0)
		for apart < 40*time.Millisecond && p.cmd.Process.Signal(syscall.SIGINT) == nil {
			apart = time.Since(began)
		}
		_, _ = io.Copy(io.Discard, p.stdout)
		err := p.cmd.Wait()
		if apart > 80*time.Millisecond {
			continue // the test was too slow: both signals counted
		}
		if err != nil || !strings.Contains(p.stderr.String(), "interrupt signal received after") {
			t.Errorf("the program ended with %v, want a normal end; stderr:\n%s", err, p.stderr)
		}
		return
	}
	t.Error("the two signals were too far apart in each attempt")
}

// TestSecondSignalKills sends a second signal while the end waits for a reader of
// the output.
func TestSecondSignalKills(t *testing.T) {
	for range 20 {
		p := newProcess(t, "run", "--simulate=2")
		p.cmd.Stdout = fullPipe(t)
		kit.Must(t, p.cmd.Start())
		p.stderr.await(t, "connected to")
		for alive := true; alive; { // until a signal is late enough to count as the second
			alive = p.cmd.Process.Signal(syscall.SIGINT) == nil && !exited(p.cmd.Process.Pid)
		}
		err := p.cmd.Wait()
		if err == nil {
			continue // the program ended before it printed anything
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
			t.Errorf("the program ended with %v, want death by SIGINT; stderr:\n%s", err, p.stderr)
		}
		return
	}
	t.Error("the program ended in order in each attempt, want death by SIGINT")
}

// fullPipe returns the write side of a pipe that is full and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	kit.Must(t, err)
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	kit.Must(t, w.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	if _, err := w.Write(make([]byte, 1<<21)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("fill a pipe: %v, want that the deadline ends it", err)
	}
	return w
}

// exited reports whether a child has ended, without waiting for it.
func exited(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestClosedPipeIsNormalEnd closes the pipe as "pleg-pipeline run | head -1" does.
func TestClosedPipeIsNormalEnd(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		p := spawn(t, "run", "--simulate=2", "-o", format)
		readUntil(t, bufio.NewReader(p.stdout), func(string) bool { return true })
		_ = p.stdout.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%s: %v, want exit code 0; stderr:\n%s", format, err, p.stderr)
		}
		if strings.Contains(p.stderr.String(), "broken pipe") {
			t.Errorf("%s: stderr = %q, want no notice about the pipe", format, p.stderr)
		}
	}
}
