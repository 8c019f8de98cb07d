//go:build linux

package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/e2e/lab"
)

// A recording of containerd tells without containerd what happened on it.
func TestRecordedContainerd(t *testing.T) {
	ctx, l := startLab(t, lab.Pinned)
	path, err := buildProgram()
	must(t, err)
	file := filepath.Join(t.TempDir(), "containerd.jsonl")
	recorder := exec.CommandContext(ctx, path, "record", file, "--relist-period", relistPeriod.String(), "--runtime-endpoint", l.Endpoint())
	var stderr bytes.Buffer
	recorder.Stderr = &stderr
	must(t, recorder.Start())
	t.Cleanup(func() { _ = recorder.Process.Kill() })

	s := newScene(l)
	step := func(err error) {
		t.Helper()
		must(t, err)
		must(t, awaitLists(ctx, file))
	}
	step(s.runPods(ctx, 3))
	for _, pod := range s.pods {
		c, err := l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Program: lab.Exit(7)})
		step(err)
		step(l.Trigger(ctx, c))
		step(l.RemoveContainer(ctx, c))
		_, err = l.RunContainer(ctx, pod, lab.ContainerSpec{Name: "main", Attempt: 1, Program: lab.Pause()})
		step(err)
	}
	step(l.KillSandbox(ctx, s.pods[0]))
	must(t, recorder.Process.Signal(syscall.SIGINT))
	if err := recorder.Wait(); err != nil {
		t.Fatalf("end of the recording: %v, %s", err, &stderr)
	}
	must(t, l.Freeze(ctx)) // nobody is to ask it

	replayed := watchProgram(t, l, newRecord("replay"), exec.CommandContext(ctx, path,
		"run", "--output", "json", "--relist-period", relistPeriod.String(), "--runtime-endpoint", "replay:"+file))
	<-replayed.read
	if err := replayed.cmd.Wait(); err != nil || !bytes.Contains(replayed.stderr.Bytes(), []byte("the recording has ended")) {
		t.Errorf("end of the replay: %v, %s", err, &replayed.stderr)
	}
	for _, pod := range s.pods {
		must(t, await(ctx, l, pod.UID, replayed.seen))
	}
}

// awaitLists waits until what has happened is in the recording: for the second
// list from now on, as the first may have begun before.
func awaitLists(ctx context.Context, file string) error {
	lists := func() int {
		text, _ := os.ReadFile(file) // it may not have been made yet
		return bytes.Count(text, []byte(`Containers","`))
	}
	before := lists()
	return eventually(ctx, func() bool { return lists() >= before+2 })
}
