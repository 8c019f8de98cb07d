//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// buildProgram builds the program as a user would, with the race detector.
var buildProgram = sync.OnceValues(func() (string, error) {
	// Not t.TempDir: the program outlives the test that builds it. e2e/.bin is
	// the tests' own folder, and git ignores it.
	path, err := filepath.Abs(filepath.Join(".bin", "pleg-pipeline"))
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-race", "-o", path, "./cmd/pleg-pipeline").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
})

// program is a running pleg-pipeline that watches a lab.
type program struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	seen   *record
	read   chan struct{} // closed when its output has ended
}

// startProgram runs the program on the lab and records its output.
func startProgram(ctx context.Context, t *testing.T, l *lab.Lab) *program {
	t.Helper()
	path, err := buildProgram()
	must(t, err)
	return watchProgram(t, l, newRecord("program"), exec.CommandContext(ctx, path, runArgs(l)...))
}

func runArgs(l *lab.Lab) []string {
	return []string{"run", "--output", "json", "--relist-period", relistPeriod.String(), "--runtime-endpoint", l.Endpoint()}
}

// watchProgram runs a command that ends with the program, until the test ends.
func watchProgram(t *testing.T, l *lab.Lab, seen *record, cmd *exec.Cmd) *program {
	t.Helper()
	p := &program{cmd: cmd, seen: seen, read: make(chan struct{})}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		defer close(p.read)
		p.decode(stdout)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.read
		_ = p.cmd.Wait()
		p.seen.check(t, l)
		if t.Failed() {
			t.Logf("stderr of the %s:\n%s", p.seen.observer, &p.stderr)
		}
	})
	return p
}

func (p *program) decode(stdout io.Reader) {
	events := json.NewDecoder(stdout)
	for {
		var read line
		err := events.Decode(&read)
		if err == io.EOF {
			return
		}
		if err != nil {
			p.seen.problem("output: %v", err)
			_, _ = io.Copy(io.Discard, stdout)
			return
		}
		p.seen.add(read.event())
	}
}

// line is a line of JSON output. The names are spelled out once more because
// other programs read them: changing one in pleg.Event alone must not go unseen.
type line struct {
	Seq           uint64           `json:"seq"`
	Type          pleg.EventType   `json:"type"`
	PodUID        pleg.PodUID      `json:"podUID"`
	PodName       string           `json:"podName"`
	PodNamespace  string           `json:"podNamespace"`
	ContainerID   pleg.ContainerID `json:"containerID"`
	ContainerName string           `json:"containerName"`
	Attempt       uint32           `json:"attempt"`
	Sandbox       bool             `json:"sandbox"`
	ExitCode      *int32           `json:"exitCode"`
	Reason        string           `json:"reason"`
	ObservedAt    time.Time        `json:"observedAt"`
}

func (l line) event() pleg.Event {
	return pleg.Event{
		Seq: l.Seq, Type: l.Type, PodUID: l.PodUID, PodName: l.PodName, PodNamespace: l.PodNamespace,
		ContainerID: l.ContainerID, ContainerName: l.ContainerName, Attempt: l.Attempt, Sandbox: l.Sandbox,
		ExitCode: l.ExitCode, Reason: l.Reason, ObservedAt: l.ObservedAt,
	}
}

// interrupt sends SIGINT and returns what the program wrote to stderr after
// that. The program must end with exit code 0.
func (p *program) interrupt(t *testing.T) string {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGINT))
	<-p.read // before Wait, which closes the pipe
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("end of the program after SIGINT: %v", err)
	}
	return strings.TrimRight(p.stderr.String(), "\n")
}

// checkSummary wants one line at the end, and no complaint.
func checkSummary(t *testing.T, stderr string) {
	t.Helper()
	lines := strings.Split(stderr, "\n")
	summary := lines[len(lines)-1]
	for _, word := range []string{"events", "ContainerStarted", "ContainerDied", "ContainerRemoved"} {
		if !strings.Contains(summary, word) {
			t.Errorf("summary: no %q in %q", word, summary)
		}
	}
	if len(lines) > 3 || strings.Contains(stderr, "DATA RACE") {
		t.Errorf("stderr: got %q, want little more than the summary", stderr)
	}
}

// The program keeps its word when the runtime does not answer: no start
// without one, no end delayed by one.
func TestProgramAndHungContainerd(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	prog := startProgram(ctx, t, l)
	s := newScene(l, prog.seen)
	must(t, s.runPods(ctx, 2))
	must(t, l.Freeze(ctx))

	path, err := buildProgram()
	must(t, err)
	second := exec.CommandContext(ctx, path, "run")
	second.Env = append(os.Environ(), "CONTAINER_RUNTIME_ENDPOINT="+l.Endpoint())
	out, err := second.CombinedOutput()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), strings.TrimPrefix(l.Endpoint(), "unix://")) {
		t.Errorf("start: got %v, %q, want exit code 1 and a message that names the endpoint", err, out)
	}
	began := time.Now()
	prog.interrupt(t)
	if took := time.Since(began); took > stepTimeout {
		t.Errorf("the program ended %v after SIGINT", took)
	}
}

// The program outlives the runtime and finds out what happened meanwhile.
func TestProgramAndRestartOfContainerd(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	prog := startProgram(ctx, t, l)
	s := newScene(l, prog.seen)
	must(t, s.runPods(ctx, 2))
	c, err := l.RunContainer(ctx, s.pods[0], lab.ContainerSpec{Name: "main", Program: lab.Pause()})
	must(t, err)
	must(t, s.awaitAll(ctx))
	l.Crash()
	must(t, l.KillProcess(ctx, c))
	must(t, l.Revive(ctx))
	must(t, l.AwaitDied(ctx, c))
	must(t, s.awaitAll(ctx))
	prog.interrupt(t)
}
