package cli_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/cli"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

var privilegeLine = regexp.MustCompile(`(?m)^(?:Cap(?:Inh|Prm|Eff|Amb)|NoNewPrivs):.*$`)

// privileges returns the lines about privileges of a status file in /proc.
func privileges(status []byte) string {
	return strings.Join(privilegeLine.FindAllString(string(status), -1), "\n")
}

// TestRunGivesUpItsCapabilities checks each thread of a running daemon.
func TestRunGivesUpItsCapabilities(t *testing.T) {
	ours, err := os.ReadFile("/proc/self/status")
	kit.Must(t, err)
	const zero = ":\t0000000000000000\n"
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--simulate=2"}, "CapInh" + zero + "CapPrm" + zero + "CapEff" + zero + "CapAmb" + zero + "NoNewPrivs:\t1"},
		{[]string{"run", "--simulate=2", "--keep-capabilities"}, privileges(ours)},
	} {
		p := spawn(t, test.args...)
		readUntil(t, bufio.NewReader(p.stdout), func(string) bool { return true })
		files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", p.cmd.Process.Pid))
		if err != nil || len(files) < 2 {
			t.Fatalf("threads: %v, %v, want some", files, err)
		}
		for _, file := range files {
			status, err := os.ReadFile(file)
			if err != nil {
				continue // the thread has ended
			}
			if got := privileges(status); got != test.want {
				t.Errorf("%v: %s:\n%s\nwant\n%s", test.args, file, got, test.want)
			}
		}
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.cmd.Process.Pid))
		if want := fmt.Sprintf("%.15s\n", filepath.Base(p.cmd.Path)); err != nil || string(name) != want {
			t.Errorf("%v: the process is called %q, %v, want %q", test.args, name, err, want)
		}
		p.signal(t, syscall.SIGTERM)
		_ = p.stdout.Close()
		_ = p.cmd.Wait()
	}
}

// TestRunEndsWithItsCapabilities: it must not go on with privileges that it cannot drop.
func TestRunEndsWithItsCapabilities(t *testing.T) {
	p := cli.Process{Drop: func() error { return errors.New("they come back") }}
	// A program that goes on does not find this runtime.
	code, out, problems := execute(t, p, "run", "-r", "/nonexistent/s")
	if code != cli.ExitFailure || out != "" || !strings.HasPrefix(problems, "pleg-pipeline: drop capabilities: they come back") {
		t.Errorf("exit code %d, output %q, stderr %q, want %d and why", code, out, problems, cli.ExitFailure)
	}
}

// The file of --config-file is read without capabilities: it may be a link to what only root
// can read, and errors quote it.
func TestConfigFileIsReadWithoutCapabilities(t *testing.T) {
	for keep, want := range map[string]string{"": "drop capabilities: before the file", "true": "no such file", "in the file": "is too late"} {
		file := filepath.Join(t.TempDir(), "missing.yaml")
		env := map[string]string{"PLEG_PIPELINE_KEEP_CAPABILITIES": keep}
		drop := errors.New("before the file")
		if keep == "in the file" {
			clear(env)
			drop = nil
			kit.Must(t, os.WriteFile(file, []byte("keep-capabilities: true\n"), 0o600))
		}
		p := with(env)
		p.Drop = func() error { return drop }
		if code, _, problems := execute(t, p, "run", "--simulate=2", "--config-file", file); code == cli.ExitOK || !strings.Contains(problems, want) {
			t.Errorf("keep %q: exit code %d, stderr %q, want %q", keep, code, problems, want)
		}
	}
}

// Only Linux has /dev/full.
func TestRunReportsFullDisk(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	kit.Must(t, err)
	defer full.Close()
	s := start(t, full, "run", "--simulate=1")
	s.ends(t, cli.ExitFailure)
	if want := "write output: "; !strings.Contains(s.stderr.String(), want) {
		t.Errorf("stderr = %q, want %q", s.stderr, want)
	}
}
