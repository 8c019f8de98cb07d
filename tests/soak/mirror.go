package soak

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// forgetAfter is the number of rests for which a container that is gone is
// remembered, in case more is told of it.
const forgetAfter = 3

// step is how far in its life a container is by what was told of it.
type step int

const (
	untold step = iota
	started
	died
	removed
)

var steps = map[pleg.EventType]step{pleg.ContainerStarted: started, pleg.ContainerDied: died, pleg.ContainerRemoved: removed}

// story is what was told of one container or sandbox.
type story struct {
	pod  pleg.PodUID
	step step
	exit *int32
	// loose stories have holes: a PodSync stood for a part of them.
	loose bool
	// absent counts the rests since it is gone.
	absent int
}

// mirror is the node as one subscriber believes it to be, by the rules of
// docs/subscriptions.md.
type mirror struct {
	wants func(Pod, Container) bool
	// look asks the agent what it has of a pod.
	look func(pleg.PodUID) (*pleg.PodStatus, error)
	// problem takes what must not be.
	problem func(format string, args ...any)
	// whole means that nothing may be missed.
	whole bool

	mu       sync.Mutex
	pods     map[pleg.PodUID]map[pleg.ContainerID]bool // whether each runs
	unsure   map[pleg.PodUID]bool                      // to be looked at again
	loose    map[pleg.PodUID]bool                      // events of it were missed
	observed map[pleg.PodUID]time.Time
	recent   map[pleg.PodUID][]pleg.Event // the last of each, for problems
	stories  map[pleg.ContainerID]*story
	lastSeq  uint64
	counts   counts
}

// counts are what a subscriber got.
type counts struct {
	Events   int    `json:"events"`
	Repairs  int    `json:"repairs"`
	Missed   uint64 `json:"missed"`
	Gaps     int    `json:"gaps"`
	Visits   int    `json:"visits"`
	Breaks   int    `json:"breaks"`
	Compared int    `json:"compared"`
}

// reset forgets everything: a replay follows.
func (m *mirror) reset() {
	m.pods = make(map[pleg.PodUID]map[pleg.ContainerID]bool)
	m.unsure = make(map[pleg.PodUID]bool)
	m.loose = make(map[pleg.PodUID]bool)
	m.observed = make(map[pleg.PodUID]time.Time)
	m.recent = make(map[pleg.PodUID][]pleg.Event)
	m.stories = make(map[pleg.ContainerID]*story)
	m.lastSeq = 0
}

// see takes an event.
func (m *mirror) see(ev pleg.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if ev.Type == pleg.Gap {
		m.reset()
		m.counts.Gaps++
		return
	}
	mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
	if ev.Seq < m.lastSeq || ev.Seq == m.lastSeq && !mark {
		m.problem("%s: number %d after %d", describe(ev), ev.Seq, m.lastSeq)
	}
	m.lastSeq = ev.Seq
	if mark {
		return
	}
	m.counts.Events++
	if ev.ObservedAt.Before(m.observed[ev.PodUID]) {
		m.problem("%s: observed earlier than the event of this pod before it", describe(ev))
	}
	m.observed[ev.PodUID] = ev.ObservedAt
	m.note(ev)
	if ev.Type == pleg.PodSync {
		m.repair(ev)
	} else {
		m.tell(ev)
	}
	if ev.Type == pleg.PodSync || m.unsure[ev.PodUID] {
		m.takeOver(ev.PodUID)
	}
}

func (m *mirror) repair(ev pleg.Event) {
	if ev.Missed == 0 {
		return
	}
	if m.whole {
		m.problem("%s: %d events missed, though it reads at once", describe(ev), ev.Missed)
	}
	m.counts.Repairs++
	m.counts.Missed += ev.Missed
	m.loose[ev.PodUID] = true
	for _, s := range m.stories {
		s.loose = s.loose || s.pod == ev.PodUID
	}
}

// tell continues the story of a container. It must go on.
func (m *mirror) tell(ev pleg.Event) {
	next, ok := steps[ev.Type]
	if !ok {
		m.problem("%s: nobody has asked for it", describe(ev))
		return
	}
	s := m.stories[ev.ContainerID]
	if s == nil {
		s = &story{pod: ev.PodUID, loose: m.loose[ev.PodUID]}
		m.stories[ev.ContainerID] = s
	}
	if next <= s.step || next == removed && s.step != died && !s.loose {
		m.problem("%s: it comes after step %d of the same container%s", describe(ev), s.step, m.before(ev))
	}
	s.step, s.absent = next, 0
	if next == died {
		s.exit = ev.ExitCode
	}
	if next == removed {
		delete(m.pods[ev.PodUID], ev.ContainerID)
		return
	}
	if m.pods[ev.PodUID] == nil {
		m.pods[ev.PodUID] = make(map[pleg.ContainerID]bool)
	}
	m.pods[ev.PodUID][ev.ContainerID] = next == started
}

// takeOver takes what the agent has of a pod, unless its inspection has failed:
// then the next event of the pod is the time to look again.
func (m *mirror) takeOver(uid pleg.PodUID) {
	status, err := m.look(uid)
	if err != nil {
		m.unsure[uid] = true
		return
	}
	delete(m.unsure, uid)
	pod := Pod{Namespace: status.Namespace}
	runs := make(map[pleg.ContainerID]bool)
	for _, c := range status.Containers {
		told := c.State == pleg.StateRunning || c.State == pleg.StateExited
		if told && m.wants(pod, Container{}) {
			runs[c.ID] = c.State == pleg.StateRunning
		}
	}
	for _, s := range status.Sandboxes {
		if m.wants(pod, Container{Sandbox: true}) {
			runs[s.ID] = s.Ready
		}
	}
	m.pods[uid] = runs
}

// compare says how what is believed differs from the truth.
func (m *mirror) compare(truth Truth) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var diff []string
	for uid, pod := range truth {
		for id, c := range pod.Containers {
			if !m.wants(pod, c) {
				continue
			}
			running, ok := m.pods[uid][id]
			told := c.State == pleg.StateRunning || c.State == pleg.StateExited
			if running != (c.State == pleg.StateRunning) || told && !ok {
				diff = append(diff, fmt.Sprintf("%s/%s %.12s: believed known %v, running %v, is %v", pod.Namespace, pod.Name, id, ok, running, c.State))
			}
		}
	}
	for uid, runs := range m.pods {
		for id := range runs {
			if _, ok := truth[uid].Containers[id]; !ok {
				diff = append(diff, fmt.Sprintf("pod %s %.12s: believed there, is gone", uid, id))
			}
		}
	}
	slices.Sort(diff)
	return diff
}

// maxRecent is how many events of a pod are remembered.
const maxRecent = 30

func (m *mirror) note(ev pleg.Event) {
	recent := append(m.recent[ev.PodUID], ev)
	m.recent[ev.PodUID] = recent[max(0, len(recent)-maxRecent):]
}

// before tells what came before an event of the same pod.
func (m *mirror) before(ev pleg.Event) string {
	var b strings.Builder
	for _, e := range m.recent[ev.PodUID] {
		fmt.Fprintf(&b, "\n  %d %s, observed %s", e.Seq, describe(e), e.ObservedAt.Format("15:04:05.000000000"))
		if e.Uninspected {
			b.WriteString(", uninspected")
		}
	}
	return b.String()
}

func describe(ev pleg.Event) string {
	return fmt.Sprintf("%s of %s/%s %s %.12s", ev.Type, ev.PodNamespace, ev.PodName, ev.ContainerName, ev.ContainerID)
}
