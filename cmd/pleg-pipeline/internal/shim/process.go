package shim

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

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
	if w.looks++; w.looks%adoptedFor == 1 {
		w.adopted = nil
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

// Find returns the pods whose shim a signal has stopped, or has ended, as one look shows them, with
// since as their time. proc is /proc.
func Find(proc fs.FS, pods []*pleg.PodStatus, since time.Time) (all []pleg.Stuck) {
	w := New(proc)
	w.findShims()
	for _, pod := range pods {
		if p := w.troubled(pod); p != nil {
			all = append(all, pleg.Stuck{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Since: since, Shim: p})
		}
	}
	return all
}

// troubled returns a shim of a pod that is stopped or has ended; nil if there is none.
func (w *Watcher) troubled(pod *pleg.PodStatus) *pleg.Process {
	for _, s := range w.shims {
		if s.process != nil && s.process.State != "D" && s.of(pod) { // D may end at once
			return s.process
		}
	}
	for _, c := range pod.Containers {
		if first, ok := w.firstOf(c.ID, pod, nil); ok && c.State == pleg.StateRunning && first.shim == 0 {
			return &pleg.Process{}
		}
	}
	return nil
}

// of reports whether the shim watches the pod, or a container of it.
func (s *shim) of(pod *pleg.PodStatus) bool {
	return pod.Sandbox(s.id) != nil || pod.Container(s.id) != nil
}

// doesNotRun reports whether a process is stopped, or a thread of it waits in the kernel, which the
// state of p then says.
func (w *Watcher) doesNotRun(p *pleg.Process) bool {
	switch {
	case process.Stopped(p):
		return true
	case p.State != "" && process.Waits(w.proc, p.PID):
		p.State = "D"
		return true
	}
	return false
}

// watches returns the sandbox or the container that a shim of runc watches; "" for any other
// process. Shims of other runtimes keep the processes of a container elsewhere.
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

// firstOf returns the first process of a container: the oldest child of its shim in its cgroup.
// It is found while it runs, and known afterwards. Another process belongs to an exec, or to no container. If the
// shim ended before anybody looked, it is 0.
func (w *Watcher) firstOf(id pleg.ContainerID, pod *pleg.PodStatus, known map[pleg.ContainerID]child) (child, bool) {
	found, ok := known[id]
	if ok && found.shim != 0 && w.runs(found.pid) {
		return found, true
	}
	watched := false
	for pid, s := range w.shims {
		if s.id != id && pod.Sandbox(s.id) == nil {
			continue
		}
		watched = true
		for _, of := range s.children {
			if w.isIn(of, id) {
				return child{of, pid}, true
			}
		}
	}
	if pid := w.orphan(id); !watched && pid != 0 {
		return child{pid: pid}, true
	}
	return found, ok && (found.shim != 0 || !watched)
}

// orphan returns the process of a container that init has adopted, as it does if the shim ends; 0 if
// there is none.
func (w *Watcher) orphan(id pleg.ContainerID) (oldest int) {
	i := slices.IndexFunc(w.adoptedByInit(), func(pid int) bool { return w.isIn(pid, id) })
	if i < 0 {
		return 0
	}
	return w.adopted[i]
}

// adoptedFor is the number of looks for which the processes that init has adopted are known: to look
// at all processes costs more than at the shims.
const adoptedFor = 3

// adoptedByInit returns the processes that init has adopted, the oldest first.
func (w *Watcher) adoptedByInit() []int {
	if w.adopted != nil {
		return w.adopted
	}
	w.adopted = []int{}
	for pid := range w.looked {
		p, parent := process.Read(w.proc, pid)
		if parent == 1 && p.State != "" && p.Name != "conmon" { // which it adopts in any case
			w.adopted = append(w.adopted, pid)
		}
	}
	slices.Sort(w.adopted)
	return w.adopted
}

// isIn reports whether a process runs in the cgroup of a container.
func (w *Watcher) isIn(pid int, id pleg.ContainerID) bool {
	cgroup, _ := fs.ReadFile(w.proc, fmt.Sprintf("%d/cgroup", pid))
	return bytes.Contains(cgroup, []byte(id)) && w.runs(pid)
}

func (w *Watcher) runs(pid int) bool {
	p, _ := process.Read(w.proc, pid)
	return p != nil && p.State != ""
}
