package shim

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// shim is a process that watches containers.
type shim struct {
	// id is the sandbox whose containers it watches, or the one container.
	id pleg.ContainerID
	// children are its processes, the oldest first.
	children []int
	// process is set while it does not run.
	process *pleg.Process
}

// findShims finds the shims that run, and their children.
func (w *Watcher) findShims() {
	processes, _ := fs.ReadDir(w.proc, ".") // without them, none are known
	looked := make(map[int]int, len(w.looked))
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		looked[pid] = min(w.looked[pid]+1, 3)
		if w.shims[pid] == nil && looked[pid] < 3 {
			if id := w.watches(pid); id != "" {
				w.shims[pid] = &shim{id: id}
			}
		}
	}
	w.looked = looked
	for pid, s := range w.shims {
		p, _ := process.Read(w.proc, pid)
		if p == nil || p.State == "" || looked[pid] == 0 {
			delete(w.shims, pid)
			continue
		}
		s.process, s.children = nil, w.children(pid)
		if w.doesNotRun(p) {
			s.process = p
		}
	}
}

// Stopped returns the shims that a signal has stopped, by the sandbox or the container that each
// watches. proc is /proc.
func Stopped(proc fs.FS) map[pleg.ContainerID]*pleg.Process {
	w := New(proc)
	w.findShims()
	found := make(map[pleg.ContainerID]*pleg.Process)
	for _, s := range w.shims {
		if s.process != nil && s.process.State != "D" { // which may end at once
			found[s.id] = s.process
		}
	}
	return found
}

// doesNotRun reports whether a process is stopped, or a thread of it waits in the kernel, which the
// state of p then says.
func (w *Watcher) doesNotRun(p *pleg.Process) bool {
	switch {
	case p.State == "T" || p.State == "t":
		return true
	case p.State != "" && process.Waits(w.proc, p.PID):
		p.State = "D"
		return true
	}
	return false
}

// watches returns the sandbox or the container that a shim of runc watches; "" for any other
// process. Shims of other runtimes have the processes of a container elsewhere.
func (w *Watcher) watches(pid int) pleg.ContainerID {
	name, _ := fs.ReadFile(w.proc, fmt.Sprintf("%d/comm", pid))
	flag := map[string]string{"containerd-shim": "-id", "conmon": "-c"}[strings.TrimSpace(string(name))]
	if flag == "" {
		return ""
	}
	line, _ := fs.ReadFile(w.proc, fmt.Sprintf("%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	runc := flag == "-c" || strings.HasSuffix(args[0], "containerd-shim-runc-v2")
	at := slices.Index(args, flag)
	if !runc || at < 0 || at+1 >= len(args) || slices.Contains(args, "-e") || slices.Contains(args, "--exec-attach") || slices.Contains(args, "start") {
		return ""
	}
	return pleg.ContainerID(args[at+1])
}

func (w *Watcher) children(pid int) (all []int) {
	text, _ := fs.ReadFile(w.proc, fmt.Sprintf("%d/task/%d/children", pid, pid))
	others, _ := fs.ReadDir(w.proc, fmt.Sprintf("%d/task", pid))
	for _, thread := range others { // the thread that started a process is its parent
		if thread.Name() != strconv.Itoa(pid) {
			more, _ := fs.ReadFile(w.proc, fmt.Sprintf("%d/task/%s/children", pid, thread.Name()))
			text = append(text, more...)
		}
	}
	for field := range strings.FieldsSeq(string(text)) {
		if child, err := strconv.Atoi(field); err == nil {
			all = append(all, child)
		}
	}
	slices.Sort(all)
	return all
}

// firstOf returns the first process of a container: the oldest child of its shim in its cgroup. It
// is found while it runs, and known afterwards. Another process belongs to an exec, or to no
// container.
func (w *Watcher) firstOf(id pleg.ContainerID, pod *pleg.PodStatus, known map[pleg.ContainerID]child) (child, bool) {
	found, ok := known[id]
	if ok && w.runs(found.pid) {
		return found, true
	}
	for pid, s := range w.shims {
		if s.id != id && pod.Sandbox(s.id) == nil {
			continue
		}
		for _, of := range s.children {
			cgroup, _ := fs.ReadFile(w.proc, fmt.Sprintf("%d/cgroup", of))
			if bytes.Contains(cgroup, []byte(id)) && w.runs(of) {
				return child{of, pid}, true
			}
		}
	}
	return found, ok
}

func (w *Watcher) runs(pid int) bool {
	p, _ := process.Read(w.proc, pid)
	return p != nil && p.State != ""
}
