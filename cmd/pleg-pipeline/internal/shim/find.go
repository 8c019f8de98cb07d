package shim

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// shim is a process that watches containers.
type shim struct {
	pid int
	// id is the sandbox whose containers it watches, or the one container.
	id pleg.ContainerID
	// stat is the state of its first thread, which a signal stops with all others.
	stat fs.File
	// children are its processes, the oldest first; nil if they were not read in this look.
	children []int
	// process is set while the shim does not run. since is when that was first seen.
	process *nodestate.Process
	since   time.Time
}

// fewTries are made soon after each other to find the processes of a container; later ones once a
// minute, for all containers at the same time.
const fewTries = 5

// seek looks for the processes of the containers that are new. It reads the processes of the node
// only for a container without a shim.
func (w *Watcher) seek(pods []cache.Entry, now time.Time) {
	for _, s := range w.shims {
		s.children = nil
	}
	var scanned *scan
	w.unfound = nil
	for _, e := range pods {
		ids := make([]pleg.ContainerID, 0, len(e.Last.Sandboxes)+len(e.Last.Containers))
		for _, s := range e.Last.Sandboxes {
			ids = append(ids, s.ID)
		}
		for _, c := range e.Last.Containers {
			ids = append(ids, c.ID)
		}
		for _, id := range ids {
			c := w.wanted[id]
			if c == nil || c.next.IsZero() || now.Before(c.next) {
				continue
			}
			c.later(now)
			s := w.watching(id, e.Last)
			if s == nil {
				if scanned == nil {
					scanned = w.scan()
				}
				s = w.watching(id, e.Last)
			}
			w.found(id, c, s, e.Last, scanned)
		}
	}
}

// later sets the time of the next try.
func (c *container) later(now time.Time) {
	if c.tries++; c.tries < fewTries {
		c.next = now.Add(lookPeriod << c.tries / 2)
	} else {
		c.next = now.Truncate(time.Minute).Add(time.Minute)
	}
}

// found notes the processes of a container, if they are known now.
func (w *Watcher) found(id pleg.ContainerID, c *container, s *shim, pod *pleg.PodStatus, all *scan) {
	first := 0
	switch {
	case s == nil && c.sandbox && w.watchesContainer(pod): // CRI-O runs no process for the sandbox
		c.next = time.Time{}
		return
	case s != nil:
		c.shim, s.process = s.pid, w.reason(s)
		if c.sandbox {
			c.next = time.Time{}
			return
		}
		first = w.childIn(s, id)
	case !c.sandbox:
		first = w.orphan(id, all)
	}
	if w.follow(first) && w.isIn(first, id) {
		c.first, c.next = first, time.Time{}
		return
	}
	w.o.Follower.Forget(first)
	if !c.sandbox && c.asked < lostTries {
		w.unfound = append(w.unfound, id)
	}
}

// watching returns the shim of a container or sandbox; nil if it is not known.
func (w *Watcher) watching(id pleg.ContainerID, pod *pleg.PodStatus) *shim {
	for _, s := range w.shims {
		if s.id == id || pod.Sandbox(id) == nil && pod.Sandbox(s.id) != nil {
			return s
		}
	}
	return nil
}

// watchesContainer reports whether a container of a pod is watched by a process of its own.
func (w *Watcher) watchesContainer(pod *pleg.PodStatus) bool {
	for _, s := range w.shims {
		if pod.Container(s.id) != nil {
			return true
		}
	}
	return false
}

// of reports whether the shim watches the pod, or a container of it.
func (s *shim) of(pod *pleg.PodStatus) bool {
	return pod.Sandbox(s.id) != nil || pod.Container(s.id) != nil
}

func (w *Watcher) drop(s *shim) {
	delete(w.shims, s.pid)
	w.order = nil
	w.o.Follower.Forget(s.pid)
	_ = s.stat.Close()
}

// scan contains the processes of the node at one time.
type scan struct {
	// adopted are the processes that init has adopted, the oldest first.
	adopted []int
}

// scan looks at all processes, and follows the shims of this runtime.
func (w *Watcher) scan() *scan {
	found := &scan{}
	processes, _ := fs.ReadDir(w.o.Proc, ".") // without them, none are known
	for _, entry := range processes {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || w.shims[pid] != nil {
			continue
		}
		p, parent := w.read(pid)
		if p.State == "" {
			continue
		}
		if id, runc := process.Watches(w.o.Proc, p); runc && w.wanted[id] != nil {
			w.add(pid, id)
		}
		if parent == 1 && p.Name != "conmon" { // which it adopts in any case
			found.adopted = append(found.adopted, pid)
		}
	}
	slices.Sort(found.adopted)
	return found
}

// add follows a shim, unless it has ended.
func (w *Watcher) add(pid int, id pleg.ContainerID) {
	if !w.follow(pid) {
		return
	}
	stat, err := w.o.Proc.Open(fmt.Sprintf("%d/task/%d/stat", pid, pid))
	if err != nil {
		w.o.Follower.Forget(pid)
		return
	}
	w.shims[pid], w.order = &shim{pid: pid, id: id, stat: stat}, nil
}

// childIn returns the oldest child of a shim in the cgroup of a container; 0 if there is none. It
// is the first process of the container. Another process belongs to an exec, or to no container.
func (w *Watcher) childIn(s *shim, id pleg.ContainerID) int {
	if s.children == nil {
		s.children = w.children(s.pid)
	}
	if i := slices.IndexFunc(s.children, func(pid int) bool { return w.isIn(pid, id) }); i >= 0 {
		return s.children[i]
	}
	return 0
}

func (w *Watcher) children(pid int) []int {
	all := []int{}
	threads, _ := fs.ReadDir(w.o.Proc, fmt.Sprintf("%d/task", pid))
	for _, thread := range threads { // the thread that started a process is its parent
		text, _ := fs.ReadFile(w.o.Proc, fmt.Sprintf("%d/task/%s/children", pid, thread.Name()))
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	slices.Sort(all)
	return all
}

// orphan returns the process of a container that init adopted when the shim ended; 0 if there is
// none.
func (w *Watcher) orphan(id pleg.ContainerID, all *scan) int {
	if i := slices.IndexFunc(all.adopted, func(pid int) bool { return w.isIn(pid, id) }); i >= 0 {
		return all.adopted[i]
	}
	return 0
}

// isIn reports whether a process runs in the cgroup of a container.
func (w *Watcher) isIn(pid int, id pleg.ContainerID) bool {
	cgroup, _ := fs.ReadFile(w.o.Proc, fmt.Sprintf("%d/cgroup", pid))
	if !bytes.Contains(cgroup, []byte(id)) {
		return false
	}
	p, _ := w.read(pid)
	return p.State != ""
}
