package differ

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

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
	// recent is how far containers have come by the events since the newest list, older by the
	// events before it.
	recent, older map[pleg.ContainerID]kind
	// found are the steps that the newest list found and no event had announced.
	found []foundStep
}

// foundStep is how far a container has come.
type foundStep struct {
	id pleg.ContainerID
	to kind
}

// hear notes an event, which announces the steps before it too: CRI-O may announce the start of
// a container after its end, or never.
func (a *announced) hear(h pleg.Hint) {
	if a.recent == nil {
		a.recent = make(map[pleg.ContainerID]kind)
	}
	to := kindOf(h.State)
	if h.Removed {
		to = gone
	}
	if len(a.recent) < maxHeard {
		a.recent[h.Container] = max(a.recent[h.Container], to)
	}
}

func (a *announced) has(s foundStep) bool { return max(a.recent[s.id], a.older[s.id]) >= s.to }

// list begins with a new list of all pods. It returns how many changes of the list before are still
// not announced by any event.
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
	if same(had, has) {
		return
	}
	find := func(id pleg.ContainerID, to kind) {
		if s := (foundStep{id, to}); !a.has(s) && len(a.found) < maxHeard {
			a.found = append(a.found, s)
		}
	}
	each(had, func(c *pleg.Container, sandbox bool) {
		switch {
		case hasContainer(has, c.ID):
		case !sandbox:
			find(c.ID, gone)
		case c.State != pleg.StateExited: // CRI-O announces the removal of none
			find(c.ID, exited)
		}
	})
	each(has, func(c *pleg.Container, _ bool) {
		if was := containerOf(had, c.ID); kindOf(c.State) > changed && (was == nil || kindOf(was.State) != kindOf(c.State)) {
			find(c.ID, kindOf(c.State))
		}
	})
}
