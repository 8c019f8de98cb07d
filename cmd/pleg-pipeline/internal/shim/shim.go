// Package shim watches the processes that stand between a runtime and its containers: containerd's
// shims and CRI-O's conmon. Only the shim tells the runtime that a container has ended. If the shim
// does not run, the container counts as running forever. The kernel knows, in /proc. Without the
// pid namespace of the host, or on another system, nothing is found.
package shim

import (
	"context"
	"io/fs"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/process"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lookPeriod is the time between two looks.
	lookPeriod = time.Second
	// settle is how long a trouble lasts before it counts: a shim waits for a disk now and then,
	// and a runtime needs time for the end of a container.
	settle = 3 * time.Second
	// reportsWithin is how long a shim that runs again may take until the runtime knows of an end.
	reportsWithin = 2 * settle
	// askAgain is the time between two lists of a pod with a container that has ended. Each request
	// starts the inspection again, and CRI-O takes 3.7 s for an inspection after the container was
	// stopped.
	askAgain = 10 * time.Second
)

// Pipeline is a pipeline.Pipeline.
type Pipeline interface {
	Cache() cache.Reader
	RequestRelist(uid pleg.PodUID)
}

// Watcher finds pods whose shim does not run. Create it with [New].
type Watcher struct {
	proc  fs.FS
	stuck atomic.Pointer[[]pleg.Stuck]

	// shims are the shims that run, by PID; looked is the number of looks at each process, as a
	// process bears the name of its parent until it executes its program.
	shims  map[int]*shim
	looked map[int]int
	// adopted are the processes that init has adopted, if they are known; looks counts the looks.
	adopted []int
	looks   int
	// first is the first process of each container that runs.
	first map[pleg.ContainerID]child
	// seen is when each trouble was first seen.
	seen map[trouble]*sighting
}

// child is the first process of a container and the shim that started it; 0 if that is not known.
type child struct{ pid, shim int }

type trouble struct {
	container pleg.ContainerID // or sandbox
	what      string
}

// sighting is when a trouble was first seen, when to ask for a list of the pod, and when the shim of a
// container that has ended was last seen that did not run.
type sighting struct{ since, ask, held time.Time }

// New returns a watcher of the processes in proc, which is /proc.
func New(proc fs.FS) *Watcher {
	return &Watcher{
		proc: proc, shims: make(map[int]*shim), looked: make(map[int]int),
		first: make(map[pleg.ContainerID]child), seen: make(map[trouble]*sighting),
	}
}

// Stuck returns the pods whose shim does not run, the longest first. It does not block.
func (w *Watcher) Stuck() []pleg.Stuck {
	if stuck := w.stuck.Load(); stuck != nil {
		return *stuck
	}
	return nil
}

// Run looks at the shims until ctx ends, and returns its cause.
func (w *Watcher) Run(ctx context.Context, p Pipeline) error {
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.look(p, time.Now())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look publishes what is wrong now.
func (w *Watcher) look(p Pipeline, now time.Time) {
	w.findShims()
	if len(w.shims) == 0 && len(w.first) == 0 && len(w.adoptedByInit()) == 0 {
		w.stuck.Store(nil)
		return
	}
	before := w.seen
	w.seen = make(map[trouble]*sighting)
	known := w.first
	w.first = make(map[pleg.ContainerID]child)
	var all []pleg.Stuck
	for _, e := range p.Cache().List() {
		if e.Last == nil {
			continue
		}
		all = append(all, w.lookAt(p, e, known, before, now)...)
	}
	slices.SortStableFunc(all, func(a, b pleg.Stuck) int { return a.Since.Compare(b.Since) })
	w.stuck.Store(&all)
}

// lookAt returns what is wrong with a pod: at most one trouble for each container and each shim.
func (w *Watcher) lookAt(p Pipeline, e cache.Entry, known map[pleg.ContainerID]child, before map[trouble]*sighting, now time.Time) (all []pleg.Stuck) {
	// lasts notes when a trouble was first seen, and reports whether it has lasted for long.
	lasts := func(id pleg.ContainerID, what string) (*sighting, bool) {
		t := trouble{id, what}
		s := before[t]
		if s == nil {
			s = &sighting{since: now, ask: now.Add(settle / 2)}
		}
		w.seen[t] = s
		return s, now.Sub(s.since) >= settle
	}
	pod := pleg.Stuck{UID: e.UID, Namespace: e.Last.Namespace, Name: e.Last.Name}
	since := make(map[int]time.Time) // of the pod's shims that do not run
	for pid, s := range w.shims {
		if s.process != nil && s.of(e.Last) {
			seen, _ := lasts(s.id, "shim") // which is stopped after it has waited for the disk
			since[pid] = seen.since
		}
	}
	named := make(map[int]bool) // shims with a container that has ended
	for _, c := range e.Last.Containers {
		if c.State != pleg.StateRunning {
			continue
		}
		first, ok := w.firstOf(c.ID, e.Last, known)
		if !ok {
			continue
		}
		w.first[c.ID] = first
		watcher, _ := process.Read(w.proc, first.shim)
		if watcher == nil {
			watcher = &pleg.Process{}
		}
		if !w.runs(first.pid) {
			s, long := lasts(c.ID, "ended")
			if !now.Before(s.ask) {
				s.ask = now.Add(askAgain)
				p.RequestRelist(e.UID)
			}
			if !long || e.LastAsOf.Before(s.since.Add(settle/2)) {
				continue // the runtime may agree soon
			}
			stuck := pod
			stuck.Since, stuck.Container, stuck.ID = s.since, c.Name, c.ID
			at, stopped := since[first.shim]
			switch {
			case stopped && now.Sub(at) >= settle:
				stuck.Shim, s.held, s.ask = watcher, now, now.Add(settle/2)
				if at.Before(stuck.Since) {
					stuck.Since = at // that the container has ended is no new trouble
				}
			case stopped && at.Sub(s.since) < settle: // which may be why, and was seen a look later
				continue
			case now.Sub(s.held) < reportsWithin || e.LastAsOf.Before(s.held.Add(settle/2)):
				continue
			}
			named[first.shim] = true
			all = append(all, stuck)
		} else if watcher.State == "" {
			if s, long := lasts(c.ID, "alone"); long {
				stuck := pod
				stuck.Since, stuck.Shim = s.since, watcher
				all = append(all, stuck)
			}
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(since)) {
		at := since[pid]
		if !named[pid] && now.Sub(at) >= settle {
			stuck := pod
			stuck.Since, stuck.Shim = at, w.shims[pid].process
			all = append(all, stuck)
		}
	}
	return all
}
