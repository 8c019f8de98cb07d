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

// passed is a container or sandbox whose life no two answers show as a whole. It is reported with
// the next change of its pod.
type passed struct {
	pod       *pleg.Pod // for its name
	container *pleg.Container
	sandbox   bool
	start     pleg.EventType
}

// told returns the events to send of the container, if the pod is what it is now. Of a sandbox that
// is first seen dead only the start is missing: no status has it.
func (p passed) told(pod *pleg.Pod) []pleg.EventType {
	switch c := containerOf(pod, p.container.ID); {
	case c == nil:
		return []pleg.EventType{p.start, pleg.ContainerDied, pleg.ContainerRemoved}
	case p.sandbox && c.State == pleg.StateExited:
		return []pleg.EventType{p.start}
	default:
		return nil
	}
}

// life is a container that events announced as started, and that no list has shown. Of an event
// it uses what names the container, and nothing else.
type life struct {
	passed
	heard uint64 // the tick of its first event
}

// hear notes an event that shows that a container has started, which no list has shown.
func (m *machine) hear(a Announcement) {
	h, rec := a.Hint, m.records[a.Hint.UID]
	switch {
	case !started(h), m.absent.Answered == 0, rec != nil && rec.shows(h.Container), m.removed.has(h.Container):
		return // the first list shows what is there
	case m.heard >= maxHeard:
		m.do.lost++
		return
	}
	m.heard++
	rec = m.recordOf(h.UID)
	pod := &pleg.Pod{UID: h.UID, Name: h.PodName, Namespace: h.PodNamespace}
	c := &pleg.Container{ID: h.Container, SandboxID: h.Sandbox, Name: h.Name, Attempt: h.Attempt}
	sandbox := h.Container == h.Sandbox
	if sandbox {
		c.SandboxID = ""
	}
	rec.heard = append(rec.heard, life{passed{pod, c, sandbox, pleg.ContainerStarted}, a.Tick})
}

// started reports whether an event shows that its container has run, and names it. CRI-O may
// announce the start after the end, or never.
func started(h pleg.Hint) bool {
	return h.UID != "" && h.Container != "" && h.Name != "" && (h.State == pleg.StateRunning || h.Status != nil && !h.Status.StartedAt.IsZero())
}

// heardOf removes from the record, and returns, the announced containers that an answer settles: it
// shows them, or it began after their events and so they are gone.
func (m *machine) heardOf(rec *record, shown *pleg.Pod, began uint64) (over []passed) {
	rec.heard = slices.DeleteFunc(rec.heard, func(l life) bool {
		if began <= l.heard && !hasContainer(shown, l.container.ID) {
			return false
		}
		m.heard--
		over = append(over, l.passed)
		return true
	})
	return over
}

// overlooked returns the containers that an answer showed, that the change in flight does not
// have, and that the next answer lacks.
func overlooked(old, sent, shown, next *pleg.Pod) (over []passed) {
	each(shown, func(c *pleg.Container, sandbox bool) {
		if hasContainer(next, c.ID) || hasContainer(old, c.ID) || hasContainer(sent, c.ID) || kindOf(c.State) == changed {
			return
		}
		start := pleg.ContainerStarted
		if c.State == pleg.StateExited {
			start = stage.ContainerRan
		}
		over = append(over, passed{shown, c, sandbox, start})
	})
	return over
}

// removed are the containers that were last reported as removed, and as many before them: their CRI
// events may come late.
type removed struct{ last, before map[pleg.ContainerID]struct{} }

func (r *removed) add(id pleg.ContainerID) {
	if r.last == nil || len(r.last) >= maxRemoved/2 {
		r.before, r.last = r.last, make(map[pleg.ContainerID]struct{})
	}
	r.last[id] = struct{}{}
}

func (r *removed) has(id pleg.ContainerID) bool {
	_, last := r.last[id]
	_, before := r.before[id]
	return last || before
}
