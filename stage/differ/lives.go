package differ

import (
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// maxHeard bounds the announced containers that no list has answered for, maxPassed those
	// of one pod that wait to be told, and maxGone the removed ones that are remembered.
	maxHeard  = 4096
	maxPassed = 64
	maxGone   = 4096
)

// passed is a container or sandbox of whose life no two answers show all: what is told of it
// with the next change of its pod.
type passed struct {
	pod       *pleg.Pod // for its name
	container *pleg.Container
	sandbox   bool
	start     pleg.EventType
}

// told returns what is told of the container, if the pod is what it is now. Of a sandbox that is
// first seen dead only the start is missing.
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

// life is a container that events announced as started, and that no list has shown.
type life struct {
	passed
	heard uint64 // the tick of its first event
}

// lives is what only events know: which containers came and went between two lists. Of an
// event it uses what names the container, and nothing else.
type lives struct {
	heard map[pleg.PodUID][]life
	count int
	// gone are the containers that were last told as removed, goneBefore as many before them:
	// their events may come late.
	gone, goneBefore map[pleg.ContainerID]struct{}
}

func newLives() lives {
	return lives{heard: make(map[pleg.PodUID][]life), gone: make(map[pleg.ContainerID]struct{})}
}

// hear notes an event that shows that a container has started, which no list has shown. It
// reports false if there is no room.
func (l *lives) hear(a Announcement) bool {
	h := a.Hint
	_, told := l.gone[h.Container]
	_, toldBefore := l.goneBefore[h.Container]
	if told || toldBefore || !started(h) {
		return true
	}
	for _, other := range l.heard[h.UID] {
		if other.container.ID == h.Container {
			return true
		}
	}
	if l.count >= maxHeard {
		return false
	}
	l.count++
	name := &pleg.Pod{UID: h.UID, Name: h.PodName, Namespace: h.PodNamespace}
	c := &pleg.Container{ID: h.Container, SandboxID: h.Sandbox, Name: h.Name, Attempt: h.Attempt}
	sandbox := h.Container == h.Sandbox
	if sandbox {
		c.SandboxID = ""
	}
	l.heard[h.UID] = append(l.heard[h.UID], life{passed{name, c, sandbox, pleg.ContainerStarted}, a.Tick})
	return true
}

// started reports whether an event shows that its container has run, and names it. CRI-O may
// announce the start after the end, or never.
func started(h pleg.Hint) bool {
	return h.Container != "" && h.Name != "" && (h.State == pleg.StateRunning || h.Status != nil && !h.Status.StartedAt.IsZero())
}

// answered returns the containers of a pod that an answer proves to be gone: it began after
// they were announced, and lacks them. Those that it shows are forgotten, but a sandbox that
// is first seen dead has started: no status says so.
func (l *lives) answered(uid pleg.PodUID, began uint64, shown *pleg.Pod) (over []passed) {
	var kept []life
	for _, c := range l.heard[uid] {
		switch {
		case hasContainer(shown, c.container.ID):
			l.count--
			if c.sandbox && containerOf(shown, c.container.ID).State == pleg.StateExited {
				over = append(over, c.passed)
			}
		case began > c.heard:
			l.count--
			over = append(over, c.passed)
		default:
			kept = append(kept, c)
		}
	}
	if l.heard[uid] = kept; kept == nil {
		delete(l.heard, uid)
	}
	return over
}

// removed notes a container that was told as removed.
func (l *lives) removed(id pleg.ContainerID) {
	if len(l.gone) >= maxGone/2 {
		l.goneBefore, l.gone = l.gone, make(map[pleg.ContainerID]struct{})
	}
	l.gone[id] = struct{}{}
}

// overlooked returns the containers that an answer showed, that the change in flight does not
// have, and that the next answer lacks.
func overlooked(old, sent, shown, next *pleg.Pod) (over []passed) {
	each(shown, func(c *pleg.Container, sandbox bool) {
		if hasContainer(next, c.ID) || hasContainer(old, c.ID) || hasContainer(sent, c.ID) || kindOf(c.State) == changed {
			return
		}
		start := pleg.ContainerStarted
		if c.State == pleg.StateExited && !sandbox {
			start = stage.ContainerRan
		}
		over = append(over, passed{shown, c, sandbox, start})
	})
	return over
}
