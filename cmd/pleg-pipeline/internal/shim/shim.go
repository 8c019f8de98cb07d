// Package shim watches the processes that stand between a runtime and its containers: containerd's
// shims and CRI-O's conmon. Only the shim tells the runtime that a container has ended. If the shim
// does not run, the container counts as running forever. /proc shows it. Without the pid namespace
// of the host, or on another system, nothing is found.
//
// A look costs next to nothing while nothing happens: pidfds show which processes have ended, and
// the state of a shim is read from a file that stays open. Other files of /proc are read for a
// container that is new, for one whose process has ended, and while an inspection hangs.
package shim

import (
	"context"
	"io/fs"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/pleg-pipeline/pleg-pipeline/cache"
	"github.com/pleg-pipeline/pleg-pipeline/internal/nodestate"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// lookPeriod is the time between two looks.
	lookPeriod = time.Second
	// every is the number of looks in which the state of each shim is read once.
	every = 5
	// settle is how long a shim must not run before that is a trouble: a shim waits for a disk now
	// and then.
	settle = 2 * time.Second
	// agreesWithin is the longest time in which a runtime that answers learns of an end.
	agreesWithin = 5 * time.Second
	// askAgain is the time between two lists of a pod with a container that has ended. Each request
	// starts the inspection again, and CRI-O takes 3.7 s for an inspection after the container was
	// stopped.
	askAgain = 10 * time.Second
)

// Pipeline is a pipeline.Pipeline.
type Pipeline interface {
	Cache() cache.Reader
	Status(ctx context.Context) (pleg.Status, error)
	RequestRelist(uid pleg.PodUID)
}

// Options say where to look.
type Options struct {
	// Proc is /proc.
	Proc fs.FS
	// Cgroups is /sys/fs/cgroup. If nil, containers that had ended before the first look are not
	// found.
	Cgroups fs.FS
	// Follower follows processes. If nil, pidfds do.
	Follower Follower
}

// Follower learns from the kernel which processes have ended.
type Follower interface {
	// Follow follows a process until it has ended or is forgotten. It returns an error if that is
	// not possible.
	Follow(pid int) error
	// Forget forgets a process, also one that is not followed.
	Forget(pid int)
	// Ended returns the processes that have ended, and forgets them.
	Ended() []int
}

// Watcher finds pods whose shim does not run. Create it with [New].
type Watcher struct {
	o     Options
	stuck atomic.Pointer[[]nodestate.Stuck]

	looks int
	// wanted are the running containers and the ready sandboxes of the cache.
	wanted map[pleg.ContainerID]*container
	shims  map[int]*shim // by PID
	order  []int         // the PIDs of shims, sorted; nil if not known
	text   [64]byte      // the beginning of a file that is read often: one system call fills it
	// unfound are the containers without a process that the last look sought.
	unfound []pleg.ContainerID
	// answering is the time since which the runtime answers as usual, relieved the time since which
	// the node is not overloaded.
	answering, relieved time.Time
}

// container is a running container or a ready sandbox.
type container struct {
	// first is its first process, and shim the process that watches it; 0 if that is not known.
	first, shim int
	// tries is the number of times they were looked for, next the time of the next one.
	tries int
	next  time.Time
	// ended is the time at which its first process was seen to have ended, alone when its shim was.
	// held is the time at which its shim was last seen not running, ask when to request a list of
	// the pod.
	ended, alone, held, ask time.Time
	// late is the time at which the node was last overloaded while the end was missed; it is kept
	// until the end is found.
	late  time.Time
	found bool
	// asked is the number of the runtime's answers about its process, lost that of those that called
	// it running although it had ended.
	asked, lost int
	sandbox     bool
	look        int // the last look that saw it in the cache
}

// New returns a watcher that has not looked yet.
func New(o Options) *Watcher {
	if o.Follower == nil {
		o.Follower = newPidfds()
	}
	return &Watcher{o: o, wanted: make(map[pleg.ContainerID]*container), shims: make(map[int]*shim)}
}

// Stuck returns the pods whose shim does not run, the longest first. It does not block.
func (w *Watcher) Stuck() []nodestate.Stuck {
	if stuck := w.stuck.Load(); stuck != nil {
		return *stuck
	}
	return nil
}

// Run looks at the shims until ctx ends, and returns its cause. It asks the runtime at the other end of
// the connection for containers without a process.
func (w *Watcher) Run(ctx context.Context, p Pipeline, runtime grpc.ClientConnInterface) error {
	defer w.forgetAll()
	ticker := time.NewTicker(lookPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.look(ctx, p, runtime, time.Now())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (w *Watcher) forgetAll() {
	for id, c := range w.wanted {
		w.forget(id, c)
	}
	for _, s := range w.shims {
		w.drop(s)
	}
}

// look publishes the present troubles.
func (w *Watcher) look(ctx context.Context, p Pipeline, runtime grpc.ClientConnInterface, now time.Time) {
	w.looks++
	pods := slices.DeleteFunc(p.Cache().List(), func(e cache.Entry) bool { return e.Last == nil })
	w.compare(pods, now)
	w.noteEnds(now)
	status, _ := p.Status(ctx)
	if !answers(status) {
		w.answering = now
	}
	if w.missesEnds() && w.isOverloaded() {
		w.relieved = now
	}
	w.seek(pods, now)
	if w.answering.Before(now) {
		w.askLost(ctx, runtime, now)
	}
	w.readStates(hanging(status, pods), now)
	var idle []*shim // the shims that do not run
	for _, pid := range w.order {
		if w.shims[pid].process != nil {
			idle = append(idle, w.shims[pid])
		}
	}
	var all []nodestate.Stuck
	for _, e := range pods {
		all = append(all, w.lookAt(p, e, idle, now)...)
	}
	slices.SortStableFunc(all, func(a, b nodestate.Stuck) int { return a.Since.Compare(b.Since) })
	w.stuck.Store(&all)
}

// hanging returns the containers and sandboxes of the pods whose inspections hang.
func hanging(s pleg.Status, pods []cache.Entry) map[pleg.ContainerID]bool {
	hangs := make(map[pleg.PodUID]bool)
	for _, i := range s.Overdue {
		hangs[i.UID] = true
	}
	for _, q := range s.Quarantined {
		hangs[q.UID] = true
	}
	if len(hangs) == 0 {
		return nil
	}
	ids := make(map[pleg.ContainerID]bool)
	for _, e := range pods {
		for _, c := range e.Last.Containers {
			ids[c.ID] = hangs[e.UID]
		}
		for _, s := range e.Last.Sandboxes {
			ids[s.ID] = hangs[e.UID]
		}
	}
	return ids
}

// compare adds the containers and sandboxes that are new, and forgets those that have ended or are
// gone.
func (w *Watcher) compare(pods []cache.Entry, now time.Time) {
	see := func(id pleg.ContainerID, sandbox bool) {
		c := w.wanted[id]
		if c == nil {
			c = &container{sandbox: sandbox, next: now}
			w.wanted[id] = c
		}
		c.look = w.looks
	}
	for _, e := range pods {
		for _, s := range e.Last.Sandboxes {
			if s.Ready {
				see(s.ID, true)
			}
		}
		for _, c := range e.Last.Containers {
			if c.State == pleg.StateRunning {
				see(c.ID, false)
			}
		}
	}
	for id, c := range w.wanted {
		if c.look != w.looks {
			w.forget(id, c)
		}
	}
}

func (w *Watcher) forget(id pleg.ContainerID, c *container) {
	delete(w.wanted, id)
	w.o.Follower.Forget(c.first)
	s := w.shims[c.shim]
	if s == nil || w.wanted[s.id] != nil {
		return
	}
	for _, other := range w.wanted { // the containers of a sandbox that has ended may run on
		if other.shim == s.pid {
			return
		}
	}
	w.drop(s)
}

// noteEnds notes which processes have ended.
func (w *Watcher) noteEnds(now time.Time) {
	for _, pid := range w.o.Follower.Ended() {
		if s := w.shims[pid]; s != nil {
			w.drop(s)
			continue
		}
		for id, c := range w.wanted {
			if c.first != pid {
				continue
			}
			if s := w.shims[c.shim]; s != nil { // an exec may have started the process
				s.children = nil
				c.first = w.childIn(s, id)
			}
			if c.first == pid || !w.follow(c.first) {
				c.first, c.ended, c.ask = pid, now, now.Add(agreesWithin)
			}
		}
	}
}

func (w *Watcher) follow(pid int) bool { return pid != 0 && w.o.Follower.Follow(pid) == nil }

// lookAt returns the troubles of a pod: at most one trouble for each container and each shim.
func (w *Watcher) lookAt(p Pipeline, e cache.Entry, idle []*shim, now time.Time) (all []nodestate.Stuck) {
	pod := nodestate.Stuck{UID: e.UID, Namespace: e.Last.Namespace, Name: e.Last.Name}
	named := make(map[int]bool) // shims with a container that has ended
	for _, c := range e.Last.Containers {
		known := w.wanted[c.ID]
		if known == nil || known.first == 0 {
			continue
		}
		stuck := pod
		if !known.ended.IsZero() {
			if !now.Before(known.ask) {
				known.ask = now.Add(askAgain)
				p.RequestRelist(e.UID)
			}
			stuck.Container, stuck.ID = c.Name, c.ID
			if w.endIsLost(known, e.LastAsOf, now, &stuck) {
				named[known.shim] = true
				all = append(all, stuck)
			}
			continue
		}
		if w.shims[known.shim] != nil {
			continue
		}
		if known.alone.IsZero() {
			known.alone = now
		}
		if now.Sub(known.alone) >= agreesWithin { // containerd ends the containers of a killed shim
			stuck.Since, stuck.Shim = known.alone, &nodestate.Process{PID: known.shim}
			all = append(all, stuck)
		}
	}
	for _, s := range idle {
		if s.of(e.Last) && !named[s.pid] && now.Sub(s.since) >= settle {
			stuck := pod
			stuck.Since, stuck.Shim = s.since, s.process
			all = append(all, stuck)
		}
	}
	return all
}
