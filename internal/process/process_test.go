package process_test

import (
	"testing"
	"testing/fstest"

	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
)

func TestRead(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	proc := fstest.MapFS{
		"self/x": file(""), "1/stat": file("1 (containerd) S 0 1"), "2/stat": file("2 (a) b) T 1 1"), "3/stat": file("3 (c) Z 1 1"), "4/stat": file("4 (short"),
		"1/task/1/stat": file("1 (containerd) S 0"), "1/task/9/stat": file("9 (containerd) D 0"), "2/task/2/stat": file("2 (a) D b) T 1"),
	}
	for pid, want := range map[int]struct {
		name, state string
		parent      int
		waits       bool
	}{
		1: {"containerd", "S", 0, true},
		2: {"a) b", "T", 1, false},
		3: {"c", "", 1, false},
		4: {},
		5: {},
	} {
		p, parent := process.Read(proc, pid)
		if p == nil || p.PID != pid || p.Name != want.name || p.State != want.state || parent != want.parent {
			t.Errorf("process %d: %+v of %d, want %+v", pid, p, parent, want)
		}
		if got := process.Waits(proc, pid); got != want.waits {
			t.Errorf("process %d waits: %t", pid, got)
		}
	}
	if p, _ := process.Read(proc, 0); p != nil {
		t.Errorf("process 0: %+v", p)
	}
	if p, _ := process.Read(fstest.MapFS{}, 1); p != nil {
		t.Errorf("without /proc: %+v", p)
	}
}
