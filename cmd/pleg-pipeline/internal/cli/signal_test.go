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
	"time"
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

// TestSignalSentTwiceIsOne is "timeout 10 pleg-pipeline run".
func TestSignalSentTwiceIsOne(t *testing.T) {
	for range 20 {
		p := spawn(t, "run", "--simulate=2", "--no-headers")
		lines(t, bufio.NewReader(p.stdout), func(string) bool { return true })
		began, apart := time.Now(), time.Duration(0)
		for apart < 40*time.Millisecond && p.cmd.Process.Signal(syscall.SIGINT) == nil {
			apart = time.Since(began)
		}
		_, _ = io.Copy(io.Discard, p.stdout)
		err := p.cmd.Wait()
		if apart > 80*time.Millisecond {
			continue // the test got no CPU meanwhile: that was more than one signal
		}
		if err != nil || !strings.Contains(p.stderr.String(), "interrupt signal received after") {
			t.Errorf("end = %v, want one in order; stderr:\n%s", err, p.stderr)
		}
		return
	}
	t.Error("the two signals were too far apart each time")
}

// TestSecondSignalKills has the end wait for output that nobody reads.
func TestSecondSignalKills(t *testing.T) {
	for range 20 {
		p := spawn(t, "run", "--simulate=1000", "-o", "json")
		p.stderr.await(t, "subscriber buffer full")
		for alive := true; alive; { // until one comes late enough to be the second
			alive = p.cmd.Process.Signal(syscall.SIGINT) == nil && !exited(p.cmd.Process.Pid)
		}
		err := p.cmd.Wait()
		if err == nil {
			continue // it got no CPU until its end in order was due too
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGINT {
			t.Errorf("end = %v, want death by SIGINT; stderr:\n%s", err, p.stderr)
		}
		return
	}
	t.Error("it ended in order each time, want death by SIGINT")
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
