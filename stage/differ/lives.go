package differ

import (
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// maxHeard bounds the announced containers that no list has answered for, maxPassed the
	// containers of a pod that wait to be reported, and maxRemoved the removed containers that are
	// remembered.
	maxHeard   = 4096
	maxPassed  = 64
	maxRemoved = 4096
)

// lives observes how far each container was reported, and which containers came and went unseen:
// between two answers, or between an event and an answer.
type lives struct {
	// begun is set by the first list that began with the event stream up: earlier events may be
	// old.
	begun bool
	heard int // containers in all of unseen.heard
	lost  int // since the last step: not reported, as too many wait
	// told is the last reported step of each container that has not been removed; nil if events are
	// the kubelet's.
	told    map[one]kind
	removed removed
}

// one identifies a container or sandbox. The ids of a CRI runtime are unique, those of an
// embedder's runtime may not be.
type one struct {
	pod pleg.PodUID
	id  pleg.ContainerID
}

// kubelet reports whether events are the kubelet's: the kubelet forgets reported steps.
func (l *lives) kubelet() bool { return l.told == nil }

// unseen is the part of lives for one pod.
type unseen struct {
	// passed are the containers to report with the next change of the pod. heard are those that
	// only events have shown.
	passed []passed
	heard  []life
}

// passed is a container or sandbox whose life no two answers show as a whole.
type passed struct {
	pod       *pleg.Pod // for its name
	container *pleg.Container
	sandbox   bool
	start     pleg.EventType
}

// life is a container that events announced as started, and that no list has shown. It keeps from
// an event the names of the container, and the tick.
type life struct {
	passed
	heard uint64 // the tick of its first event
}

// view is the knowledge of a pod when an answer came.
type view struct {
	// old is the reported pod, shown the pod in the previous answer.
	old, shown *pleg.Pod
	// sent is the pod that is being inspected; nil if none is.
	sent *pleg.Pod
	// waits is set if shown has not been reported.
	waits bool
}

// answered takes the next answer about a pod, which began at that tick. It may lack containers that
// the previous answer showed, or that only events announced. These are kept until they are
// reported.
func (l *lives) answered(u *unseen, v view, next *pleg.Pod, began uint64) {
	if v.waits && v.shown != next && v.shown != v.sent {
		l.overlooked(u, v, next)
	}
	u.heard = slices.DeleteFunc(u.heard, func(h life) bool {
		if began <= h.heard && !isBeyondCreated(next, h.container.ID) {
			return false // the list may have begun before its start
		}
		l.heard--
		l.add(u, h.passed)
		return true
	})
}

// overlooked adds the containers that an answer showed running or exited, if neither the log nor the
// inspection contains this state, and the next answer does not show it.
func (l *lives) overlooked(u *unseen, v view, next *pleg.Pod) {
	each(v.shown, func(c *pleg.Container, sandbox bool) {
		if kindOf(c.State) < running || max(kindIn(v.old, c.ID), kindIn(v.sent, c.ID), kindIn(next, c.ID)) >= running {
			return
		}
		start := pleg.ContainerStarted
		if c.State == pleg.StateExited {
			start = stage.ContainerRan
		}
		l.add(u, passed{v.shown, c, sandbox, start})
	})
}

// add adds a container to report, once.
func (l *lives) add(u *unseen, p passed) {
	switch {
	case slices.ContainsFunc(u.passed, func(o passed) bool { return o.container.ID == p.container.ID }):
	case len(u.passed) >= maxPassed:
		l.lost++
	default:
		u.passed = append(u.passed, p)
	}
}

// pod returns a pod with the name of the first container to report; nil if there is none.
func (u *unseen) pod() *pleg.Pod {
	if len(u.passed) == 0 {
		return nil
	}
	return u.passed[0].pod
}

// has reports whether a container of the pod is known only from its life.
func (u *unseen) has(id pleg.ContainerID) bool {
	return slices.ContainsFunc(u.passed, func(p passed) bool { return p.container.ID == id }) ||
		slices.ContainsFunc(u.heard, func(l life) bool { return l.container.ID == id })
}

// Announcement is a CRI event, and the tick of its arrival.
type Announcement struct {
	Hint pleg.Hint
	Tick uint64
}

// started reports whether the event shows that its container has run, and names it. CRI-O may
// announce the start after the end, or never.
func (a Announcement) started() bool {
	h := a.Hint
	return h.UID != "" && h.Container != "" && h.Name != "" && (h.State == pleg.StateRunning || h.Status != nil && !h.Status.StartedAt.IsZero())
}

// hear returns the life that an event begins, and whether the limits allow it.
func (l *lives) hear(a Announcement) (life, bool) {
	if l.heard >= maxHeard {
		l.lost++
		return life{}, false
	}
	l.heard++
	h := a.Hint
	pod := &pleg.Pod{UID: h.UID, Name: h.PodName, Namespace: h.PodNamespace}
	c := &pleg.Container{ID: h.Container, Name: h.Name, Attempt: h.Attempt}
	return life{passed{pod, c, h.Container == h.Sandbox, pleg.ContainerStarted}, a.Tick}, true
}

// committed notes the steps that a committed change reports. was and is are the pod before and
// after the change. The change also reports the first n of the containers that came and went.
func (l *lives) committed(u *unseen, uid pleg.PodUID, was, is *pleg.Pod, n int) {
	gone := func(c *pleg.Container, _ bool) {
		if !hasContainer(is, c.ID) {
			l.removed.add(one{uid, c.ID})
			delete(l.told, one{uid, c.ID})
		}
	}
	each(was, gone)
	for _, p := range u.passed[:n] {
		gone(p.container, p.sandbox)
	}
	// A container that is reported as removed is not reported again for an earlier event.
	u.passed = slices.DeleteFunc(u.passed[n:], func(p passed) bool { return l.removed.has(one{uid, p.container.ID}) })
	if len(u.passed) == 0 {
		u.passed = nil
	}
	u.heard = slices.DeleteFunc(u.heard, func(h life) bool {
		over := l.removed.has(one{uid, h.container.ID})
		if over {
			l.heard--
		}
		return over
	})
	if l.kubelet() {
		return
	}
	each(is, func(c *pleg.Container, _ bool) {
		if k := kindOf(c.State); k >= running && k > l.told[one{uid, c.ID}] {
			l.told[one{uid, c.ID}] = k
		}
	})
}

// removed are the containers that were last reported as removed, and as many before them: their CRI
// events may come late.
type removed struct{ last, before map[one]struct{} }

func (r *removed) add(c one) {
	if r.last == nil || len(r.last) >= maxRemoved/2 {
		r.before, r.last = r.last, make(map[one]struct{})
	}
	r.last[c] = struct{}{}
}

func (r *removed) has(c one) bool {
	_, last := r.last[c]
	_, before := r.before[c]
	return last || before
}
