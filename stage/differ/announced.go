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
// KEP-3386 promised. An event may come until the list after the list that found its change.
type announced struct {
	// recent is how far events since the newest list say that containers have come, older how
	// far those before it do, and found how far that list shows them.
	recent, older, found map[pleg.ContainerID]kind
}

// hear notes an event, which announces the steps before it too: CRI-O may announce the start of
// a container after its end, or never.
func (a *announced) hear(h pleg.Hint) {
	to := kindOf(h.State)
	if h.Removed {
		to = gone
	}
	if len(a.recent) < maxHeard {
		a.recent[h.Container] = max(a.recent[h.Container], to)
	}
}

// list begins with a new list of all pods. It returns of how many containers the one before it
// found a change that no event has announced since.
func (a *announced) list() (unannounced int) {
	for id, to := range a.found {
		if max(a.recent[id], a.older[id]) < to {
			unannounced++
		}
	}
	a.older, a.recent = a.recent, a.older
	clear(a.recent)
	clear(a.found)
	return unannounced
}

// announcedKinds are how far a container has come with an event.
var announcedKinds = map[pleg.EventType]kind{pleg.ContainerStarted: running, pleg.ContainerDied: exited, pleg.ContainerRemoved: gone}

// expect notes what a list found of a pod. CRI-O announces the removal of no sandbox.
func (a *announced) expect(had, has *pleg.Pod) {
	for _, ev := range events(had, has, nil, time.Time{}) {
		if to := announcedKinds[ev.Type]; to > a.found[ev.ContainerID] && (to < gone || !ev.Sandbox) {
			a.found[ev.ContainerID] = to
		}
	}
}
