package shim

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// TestPidfds follows more processes than one call of the kernel returns. Those that have ended are
// returned once, and no file stays open.
func TestPidfds(t *testing.T) {
	kit.Must(t, exec.CommandContext(t.Context(), "true").Run()) // files that the first one opens stay open
	before := openFiles(t)
	p := New(Options{}).o.Follower
	p.Forget(os.Getpid()) // which it does not follow
	var running []*exec.Cmd
	for range 100 {
		sleep := exec.CommandContext(t.Context(), "sleep", "60")
		kit.Must(t, sleep.Start())
		running = append(running, sleep)
	}
	end := func(of []*exec.Cmd) (pids []int) {
		for _, c := range of {
			kit.Must(t, c.Process.Kill())
			_ = c.Wait() // the process was killed
			pids = append(pids, c.Process.Pid)
		}
		return pids
	}
	t.Cleanup(func() { end(running) })
	for _, c := range running {
		kit.Must(t, p.Follow(c.Process.Pid))
		kit.Must(t, p.Follow(c.Process.Pid))
	}
	if ended := p.Ended(); len(ended) > 0 {
		t.Errorf("all run, and %v have ended", ended)
	}
	want := end(running[:90])
	running = running[90:]
	ended := p.Ended()
	slices.Sort(want)
	if slices.Sort(ended); !slices.Equal(ended, want) {
		t.Errorf("ended are %v, want %v", ended, want)
	}
	if again := p.Ended(); len(again) > 0 {
		t.Errorf("%v have ended twice", again)
	}
	for _, c := range running {
		p.Forget(c.Process.Pid)
	}
	end(running)
	running = nil
	null, err := os.Open(os.DevNull) // it gets the number of a file that was closed
	kit.Must(t, err)
	p.Forget(want[0])
	kit.Must(t, null.Close())
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, want %d as before", after, before)
	}
	if err := p.Follow(want[0]); err == nil || openFiles(t) != before {
		t.Errorf("following a process that has ended: %v, %d files are open, want an error and %d", err, openFiles(t), before)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	kit.Must(t, err)
	return len(files)
}
