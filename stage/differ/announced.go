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
	h := a.Hint
	if h.UID == "" || h.Container == "" {
		return
	}
	m.announced.hear(h.Container)
	rec := m.records[h.UID]
	if m.backlog.listings == 0 || rec != nil && rec.shows(h.Container) {
		return // the first list shows what is there
	}
	if !m.lives.hear(a) {
		m.do.count[lost]++
		m.do.relistSoon = true
	}
}

// announced compares what CRI events announce with what lists of all pods find: the metric that
// KEP-3386 promised. An event may come until the list after the one that found its change.
type announced struct {
	// recent are the containers that events named since the newest list, older those before it.
	recent, older map[pleg.ContainerID]struct{}
	// found are the containers that the newest list found changed and no event had named, once
	// for each change.
	found []pleg.ContainerID
}

func (a *announced) hear(id pleg.ContainerID) {
	if a.recent == nil {
		a.recent = make(map[pleg.ContainerID]struct{})
	}
	if len(a.recent) < maxHeard {
		a.recent[id] = struct{}{}
	}
}

func (a *announced) has(id pleg.ContainerID) bool {
	_, recent := a.recent[id]
	_, older := a.older[id]
	return recent || older
}

// list begins with a new list of all pods. It returns how many changes the one before it found
// that no event has announced since.
func (a *announced) list() (unannounced int) {
	for _, id := range a.found {
		if !a.has(id) {
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
		if told && !a.has(ev.ContainerID) && len(a.found) < maxHeard {
			a.found = append(a.found, ev.ContainerID)
		}
	}
}
