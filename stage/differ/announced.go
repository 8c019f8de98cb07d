package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// Announcement is a CRI event, and the tick of its arrival.
type Announcement struct {
	Hint pleg.Hint
	Tick uint64
}

func (a Announcement) apply(m *machine) {
	m.announced.hear(a.Hint)
	m.hear(a)
}

// announced compares what CRI events announce with what lists of all pods find: the metric that
// KEP-3386 promised. An event may come until the list after the one that found its change.
type announced struct {
	// recent are the steps that events announced since the newest list, older those before it.
	recent, older map[announcedStep]struct{}
	// found are the steps that the newest list found and no event had announced.
	found []announcedStep
}

// announcedStep is what happened to a container.
type announcedStep struct {
	id pleg.ContainerID
	to pleg.EventType
}

// hear notes an event, which announces the steps before it too: CRI-O may announce the start of
// a container after its end, or never.
func (a *announced) hear(h pleg.Hint) {
	if a.recent == nil {
		a.recent = make(map[announcedStep]struct{})
	}
	if len(a.recent) >= maxHeard {
		return
	}
	note := func(to pleg.EventType) { a.recent[announcedStep{h.Container, to}] = struct{}{} }
	if h.Removed {
		note(pleg.ContainerRemoved)
	}
	if h.Removed || h.State == pleg.StateExited {
		note(pleg.ContainerDied)
	}
	if h.Removed || h.State >= pleg.StateRunning {
		note(pleg.ContainerStarted)
	}
}

func (a *announced) has(s announcedStep) bool {
	_, recent := a.recent[s]
	_, older := a.older[s]
	return recent || older
}

// list begins with a new list of all pods. It returns how many changes the one before it found
// that no event has announced since.
func (a *announced) list() (unannounced int) {
	for _, s := range a.found {
		if !a.has(s) {
			unannounced++
		}
	}
	a.found = a.found[:0]
	a.older, a.recent = a.recent, nil
	return unannounced
}

// expect notes what a list found of a pod.
func (a *announced) expect(had, has *pleg.Pod) {
	for _, ev := range events(had, has, nil, time.Time{}) {
		if ev.Sandbox && ev.Type == pleg.ContainerRemoved {
			continue // CRI-O announces none
		}
		told := ev.Type == pleg.ContainerStarted || ev.Type == pleg.ContainerDied || ev.Type == pleg.ContainerRemoved
		s := announcedStep{ev.ContainerID, ev.Type}
		if told && !a.has(s) && len(a.found) < maxHeard {
			a.found = append(a.found, s)
		}
	}
}
