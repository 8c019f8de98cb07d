package process_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func TestRead(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	proc := fstest.MapFS{
		"self/x": file(""), "1/stat": file("1 (containerd) S 0 1"), "2/stat": file("2 (a) b) T 1 1"), "3/stat": file("3 (c) Z 1 1"), "4/stat": file("4 (short"), "6/stat": file("6 (d) X 1 1"),
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
		6: {"d", "", 1, false},
	} {
		p, parent := process.Read(proc, pid)
		if p == nil || p.PID != pid || p.Name != want.name || p.State != want.state || parent != want.parent {
			t.Errorf("process %d: %+v of %d, want %+v", pid, p, parent, want)
		}
		if got := process.Waits(proc, pid); got != want.waits {
			t.Errorf("process %d waits: %t", pid, got)
		}
	}
	if p, parent := process.Read(proc, 0); p != nil || parent != 0 {
		t.Errorf("process 0: %+v of %d", p, parent)
	}
	if p, parent := process.Read(fstest.MapFS{}, 1); p != nil || parent != 0 {
		t.Errorf("without /proc: %+v of %d", p, parent)
	}
}

// A process that a debugger holds is as stopped as one that a signal has stopped.
func TestStopped(t *testing.T) {
	for state, want := range map[string]bool{"T": true, "t": true, "S": false, "D": false, "": false} {
		if got := process.Stopped(&nodestate.Process{PID: 7, State: state}); got != want {
			t.Errorf("a process in state %q is stopped: %t", state, got)
		}
	}
	if process.Stopped(nil) {
		t.Error("a process that is not known is stopped")
	}
}

func TestWatches(t *testing.T) {
	if id, runc := process.Watches(fstest.MapFS{}, nil); id != "" || runc {
		t.Errorf("a process that is not known watches %q, runc %t", id, runc)
	}
	for name, test := range map[string]struct {
		of, line string
		want     pleg.ContainerID
		runc     bool
	}{
		"a shim":             {"containerd-shim", "/bin/containerd-shim-runc-v2 -namespace k8s.io -id s1 -address /run/s", "s1", true},
		"another runtime's":  {"containerd-shim", "/bin/containerd-shim-runsc-v1 -id s1", "s1", false},
		"one that begins":    {"containerd-shim", "/bin/containerd-shim-runc-v2 -id s1 start", "", false},
		"without a flag":     {"containerd-shim", "/bin/containerd-shim-runc-v2 -namespace k8s.io", "", false},
		"a conmon":           {"conmon", "/bin/conmon -b /x -c c1", "c1", true},
		"that of an exec":    {"conmon", "/bin/conmon -b /x -c c1 -e", "", false},
		"that of a terminal": {"conmon", "/bin/conmon -b /x -c c1 --exec-attach", "", false},
		"without an id":      {"conmon", "/bin/conmon -c", "", false},
		"another program":    {"agent", "/bin/agent -id s1 -c c1", "", false},
	} {
		proc := fstest.MapFS{"7/cmdline": {Data: []byte(strings.ReplaceAll(test.line, " ", "\x00"))}}
		if id, runc := process.Watches(proc, &nodestate.Process{PID: 7, Name: test.of}); id != test.want || runc != test.runc {
			t.Errorf("%s watches %q, runc %t; want %q, %t", name, id, runc, test.want, test.runc)
		}
	}
}
