package cli_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// process is the program in a process of its own.
type process struct {
	cmd    *exec.Cmd
	stdout io.ReadCloser
	stderr *transcript
}

func spawn(t *testing.T, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.CommandContext(t.Context(), program, args...), stderr: newTranscript()}
	p.cmd.Env = []string{asProgram + "=1", "TMPDIR=" + t.TempDir()}
	p.cmd.Stderr = p.stderr
	if p.stdout, err = p.cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func TestSignalsEndInOrder(t *testing.T) {
	for _, test := range []struct {
		signal syscall.Signal
		want   string
	}{
		{syscall.SIGINT, "interrupt signal received after"},
		{syscall.SIGTERM, "terminated signal received after"},
	} {
		p := spawn(t, "run", "--simulate=2")
		out := bufio.NewReader(p.stdout)
		lines(t, out, func(line string) bool { return strings.Contains(line, "(sandbox)") })
		p.signal(t, test.signal)
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0; stderr:\n%s", test.signal, err, p.stderr)
		}
		last := regexp.MustCompile(`[^\n]*\n$`).FindString(p.stderr.String())
		if !strings.Contains(last, test.want) {
			t.Errorf("%v: stderr ends with %q, want %q", test.signal, last, test.want)
		}
	}
}

// TestSecondSignalKills has the end wait for output that nobody reads.
func TestSecondSignalKills(t *testing.T) {
	p := spawn(t, "run", "--simulate=1000", "-o", "json")
	out := bufio.NewReader(p.stdout)
	lines(t, out, func(string) bool { return true })
	for alive := true; alive; { // the first may not have been dealt with when the second comes
		alive = p.cmd.Process.Signal(syscall.SIGINT) == nil && !exited(p.cmd.Process.Pid)
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
		t.Errorf("end = %v, want death by SIGINT; stderr:\n%s", err, p.stderr)
	}
}

// exited reports whether a child has ended, without reaping it.
func exited(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// TestClosedPipe is "pleg-pipeline run | head -1".
func TestClosedPipe(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		p := spawn(t, "run", "--simulate=2", "-o", format)
		lines(t, bufio.NewReader(p.stdout), func(string) bool { return true })
		_ = p.stdout.Close()
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%s: %v, want exit code 0; stderr:\n%s", format, err, p.stderr)
		}
		if strings.Contains(p.stderr.String(), "broken pipe") {
			t.Errorf("%s: stderr = %q, want nothing about the pipe", format, p.stderr)
		}
	}
}
