//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/tests/kit/process"
	"github.com/pleg-pipeline/pleg-pipeline/tests/real/e2e/lab"
)

// The replay of a recording reports the events of containerd, without containerd.
func TestReplayOfRecording(t *testing.T) {
	t.Parallel()
	ctx, f := newFixture(t, lab.Options{})
	l := f.lab
	path, err := process.Program("-race")
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

	replay := exec.CommandContext(ctx, path,
		"run", "--output", "json", "--relist-period", relistPeriod.String(), "--runtime-endpoint", "replay:"+file)
	stderr.Reset()
	replay.Stderr = &stderr
	out, err := replay.Output()
	if err != nil || !strings.Contains(stderr.String(), "the recording has ended") {
		t.Errorf("end of the replay: %v, %s", err, &stderr)
	}
	in := newInstance("replay")
	for line := range bytes.Lines(out) {
		var ev pleg.Event
		must(t, json.Unmarshal(line, &ev))
		in.add(ev)
	}
	in.stream.Replay = false
	if err := f.diff(ctx, in); err != nil {
		t.Error(err)
	}
}

// awaitRecordedLists waits until the recording contains everything so far: for two
// more lists, because the first may have begun before.
func awaitRecordedLists(ctx context.Context, file string) error {
	lists := func() int {
		text, _ := os.ReadFile(file) // the file may not exist yet
		return bytes.Count(text, []byte(`Containers","`))
	}
	before := lists()
	return eventually(ctx, func() bool { return lists() >= before+2 })
}

// awaitRecordedStatus waits until the recording contains a status that shows a container or
// sandbox in a state. The status follows the list.
func awaitRecordedStatus(ctx context.Context, file, id, state string) error {
	return eventually(ctx, func() bool {
		text, _ := os.ReadFile(file)
		for line := range bytes.Lines(text) {
			if bytes.Contains(line, []byte(`Status","request"`)) && bytes.Contains(line, []byte(id)) && bytes.Contains(line, []byte(state)) {
				return true
			}
		}
		return false
	})
}
