package shim

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// readStates finds the shims that do not run. It looks at a part of all shims each time, and always
// at those that did not run or whose pods hang, with their threads.
func (w *Watcher) readStates(hangs map[pleg.ContainerID]bool, now time.Time) {
	if w.order == nil {
		w.order = slices.Sorted(maps.Keys(w.shims))
	}
	ended := make(map[int]bool) // shims with a container that has ended
	for _, c := range w.wanted {
		if !c.ended.IsZero() {
			ended[c.shim] = true
		}
	}
	for n, pid := range w.order {
		s := w.shims[pid]
		switch {
		case s.process != nil || hangs[s.id] || ended[pid]:
			s.process = w.reason(s)
		case n%every == w.looks%every && !w.seemsToRun(s):
			if p := w.state(s); p.State == "D" || process.Stopped(p) {
				s.process = p
			}
		}
		switch {
		case s.process == nil:
			s.since = time.Time{}
		case s.since.IsZero():
			s.since = now
		}
	}
}

// seemsToRun reports whether a shim's first thread runs or sleeps. Nearly all do, so this allocates
// nothing.
func (w *Watcher) seemsToRun(s *shim) bool {
	again, ok := s.stat.(io.ReaderAt)
	if !ok {
		return false
	}
	n, _ := again.ReadAt(w.text[:], 0) // nothing if it has ended
	at := bytes.LastIndexByte(w.text[:n], ')') + 2
	return at > 1 && at < n && (w.text[at] == 'S' || w.text[at] == 'R')
}

// state returns the state of a shim's first thread.
func (w *Watcher) state(s *shim) *nodestate.Process {
	if again, ok := s.stat.(io.ReaderAt); ok {
		n, _ := again.ReadAt(w.text[:], 0) // nothing if it has ended
		p, _ := process.Parse(s.pid, w.text[:n])
		return p
	}
	p, _ := w.read(s.pid)
	return p
}

// read returns a process, whose state is empty if it has ended, and its parent's number.
func (w *Watcher) read(pid int) (of *nodestate.Process, parent int) {
	stat, _ := fs.ReadFile(w.o.Proc, fmt.Sprintf("%d/stat", pid)) // empty if it has ended
	return process.Parse(pid, stat)
}

// reason returns the shim's process if it is stopped, or nil. If a thread of it waits in the kernel,
// or its cgroup is frozen, the returned state is D.
func (w *Watcher) reason(s *shim) *nodestate.Process {
	p := w.state(s)
	switch {
	case process.Stopped(p):
		return p
	case p.State != "" && (process.Waits(w.o.Proc, s.pid) || w.isFrozen(s.pid)):
		p.State = "D"
		return p
	}
	return nil
}

// isFrozen reports whether a process is in a frozen cgroup v2. There its state is that of a
// sleeping process; in cgroup v1 it is D.
func (w *Watcher) isFrozen(pid int) bool {
	if w.o.Cgroups == nil {
		return false
	}
	all, _ := fs.ReadFile(w.o.Proc, fmt.Sprintf("%d/cgroup", pid)) // empty if it has ended
	for line := range strings.Lines(string(all)) {
		dir, v2 := strings.CutPrefix(strings.TrimSpace(line), "0::/")
		for _, root := range []string{"", "unified"} {
			events, _ := fs.ReadFile(w.o.Cgroups, path.Join(root, dir, "cgroup.events"))
			if v2 && slices.Contains(strings.Split(string(events), "\n"), "frozen 1") {
				return true
			}
		}
	}
	return false
}
