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

var (
	buildProgram = sync.OnceValues(func() (string, error) { return build("pleg-pipeline", "-race") })
	// buildRelease builds without the race detector, which takes many times as
	// much memory.
	buildRelease = sync.OnceValues(func() (string, error) { return build("pleg-pipeline-release") })
)

// build builds the program into .bin, because t.TempDir would not outlive the
// test that builds it.
func build(name string, flags ...string) (string, error) {
	path, err := filepath.Abs(filepath.Join(".bin", name))
	if err != nil {
		return "", err
	}
	args := append([]string{"build", "-C", filepath.Join("..", ".."), "-o", path}, flags...)
	out, err := exec.Command("go", append(args, "./cmd/pleg-pipeline")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
}

// program is a process of pleg-pipeline.
type program struct {
	*instance
	cmd    *exec.Cmd
	stderr bytes.Buffer
	read   chan struct{} // closed when its output has ended
}

// runProgram runs the program on the lab until the test ends.
func (f *fixture) runProgram(ctx context.Context) *program {
	f.t.Helper()
	path, err := buildProgram()
	must(f.t, err)
	return f.runCommand("program", exec.CommandContext(ctx, path, f.runArgs()...))
}

func (f *fixture) runArgs() []string {
	return []string{"run", "--output", "json", "--relist-period", relistPeriod.String(), "--runtime-endpoint", f.lab.Endpoint()}
}

// runCommand runs a command whose process becomes the program.
func (f *fixture) runCommand(name string, cmd *exec.Cmd) *program {
	t := f.t
	t.Helper()
	p := &program{instance: newInstance(name), cmd: cmd, read: make(chan struct{})}
	cmd.Stderr = &p.stderr
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	go func() {
		defer close(p.read)
		p.decode(stdout)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.read
		_ = cmd.Wait()
		p.check(t, f.lab)
		if t.Failed() {
			t.Logf("stderr of %s:\n%s", name, &p.stderr)
		}
	})
	f.instances = append(f.instances, p.instance)
	return p
}

func (p *program) decode(stdout io.Reader) {
	events := json.NewDecoder(stdout)
	for {
		var l line
		err := events.Decode(&l)
		if err == io.EOF {
			return
		}
		if err != nil {
			p.problem("output: %v", err)
			_, _ = io.Copy(io.Discard, stdout)
			return
		}
		p.add(pleg.Event{
			Seq: l.Seq, Type: l.Type, PodUID: l.PodUID, PodName: l.PodName, PodNamespace: l.PodNamespace,
			ContainerID: l.ContainerID, ContainerName: l.ContainerName, Attempt: l.Attempt, Sandbox: l.Sandbox,
			ExitCode: l.ExitCode, Reason: l.Reason, ObservedAt: l.ObservedAt,
		})
	}
}

// line is a line of JSON output. It repeats the names, because other programs
// read them: a name that changes in pleg.Event must fail the tests.
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

// interrupt sends SIGINT and returns the stderr of the program, which must end
// with exit code 0.
func (p *program) interrupt(t *testing.T) string {
	t.Helper()
	must(t, p.cmd.Process.Signal(syscall.SIGINT))
	<-p.read // before Wait, which closes the pipe
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("end of the program after SIGINT: %v", err)
	}
	return strings.TrimRight(p.stderr.String(), "\n")
}

// checkSummary fails the test unless stderr is little more than the summary.
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
		t.Errorf("stderr: got %q, want the summary and at most two lines before it", stderr)
	}
}

// If containerd hangs, the program does not start, but it ends at once.
func TestProgramWithHungContainerd(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	first := f.runProgram(ctx)
	f.runPods(ctx, 2)
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
	first.interrupt(t)
	if took := time.Since(began); took > stepTimeout {
		t.Errorf("the program ended %v after SIGINT", took)
	}
}

// The replay of a recording reports what happened on containerd, without
// containerd.
func TestReplayOfRecording(t *testing.T) {
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	path, err := buildProgram()
	must(t, err)
	file := filepath.Join(t.TempDir(), "containerd.jsonl")
	recorder := exec.CommandContext(ctx, path, "record", file, "--relist-period", relistPeriod.String(), "--runtime-endpoint", l.Endpoint())
	var stderr bytes.Buffer
	recorder.Stderr = &stderr
	must(t, recorder.Start())
	t.Cleanup(func() { _ = recorder.Process.Kill() })

	f.runPods(ctx, 3)
	must(t, awaitRecordedLists(ctx, file))
	step := func(err error, id, state string) {
		t.Helper()
		must(t, err)
		must(t, awaitRecordedLists(ctx, file))
		must(t, awaitRecordedStatus(ctx, file, id, state))
	}
	for _, pod := range f.pods {
		c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
		step(err, c.ID, "CONTAINER_RUNNING")
		step(l.Trigger(ctx, c), c.ID, "CONTAINER_EXITED")
		must(t, l.RemoveContainer(ctx, c))
		must(t, awaitRecordedLists(ctx, file))
		c, err = l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()})
		step(err, c.ID, "CONTAINER_RUNNING")
	}
	pod := f.pods[0]
	if l.Traits().SandboxProcess {
		step(l.KillSandbox(ctx, pod), pod.SandboxID, "SANDBOX_NOTREADY")
	} else {
		step(l.StopPod(ctx, pod), pod.SandboxID, "SANDBOX_NOTREADY")
		must(t, awaitRecordedStatus(ctx, file, newest(pod).ID, "CONTAINER_EXITED"))
	}
	must(t, recorder.Process.Signal(syscall.SIGINT))
	if err := recorder.Wait(); err != nil {
		t.Fatalf("end of the recording: %v, %s", err, &stderr)
	}
	must(t, l.Freeze(ctx)) // the replay must not call it

	replay := f.runCommand("replay", exec.CommandContext(ctx, path,
		"run", "--output", "json", "--relist-period", relistPeriod.String(), "--runtime-endpoint", "replay:"+file))
	<-replay.read
	if err := replay.cmd.Wait(); err != nil || !bytes.Contains(replay.stderr.Bytes(), []byte("the recording has ended")) {
		t.Errorf("end of the replay: %v, %s", err, &replay.stderr)
	}
	f.awaitAll(ctx)
}

// awaitRecordedLists waits until the recording has what happened so far: for two
// more lists, because the first may have begun before.
func awaitRecordedLists(ctx context.Context, file string) error {
	lists := func() int {
		text, _ := os.ReadFile(file) // it may not exist yet
		return bytes.Count(text, []byte(`Containers","`))
	}
	before := lists()
	return eventually(ctx, func() bool { return lists() >= before+2 })
}

// awaitRecordedStatus waits until the recording has a status that shows a container or
// sandbox in a state. It follows the list.
func awaitRecordedStatus(ctx context.Context, file, id, state string) error {
	return eventually(ctx, func() bool {
		text, _ := os.ReadFile(file)
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(`Status","id"`)) && bytes.Contains(line, []byte(id)) && bytes.Contains(line, []byte(state)) {
				return true
			}
		}
		return false
	})
}
