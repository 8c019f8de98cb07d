package differ

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// missedAfter is how much later than the listing that shows a change its CRI
	// event may come. After that the change counts as unannounced.
	missedAfter = 5 * time.Second
	// maxRecent bounds what is remembered of single events.
	maxRecent = 4096
)

// announcements compares what CRI events announce with what lists show. It counts
// unannounced changes, the metric that KEP-3386 promised for the kubelet, and
// reports them to the lister, which decides whether to trust the stream.
type announcements struct {
	lister  StreamJudge
	counter prometheus.Counter
	// recent are steps that either a list or an event has shown. They are kept for
	// missedAfter, in order; due is the number of those that make the stream doubtful if no
	// event announces them.
	recent map[step]shown
	order  []step
	due    int
	// newPods counts the pods since the last listing that only events have shown.
	newPods int
	// confirmed is set if a list or an event shows what the other one had shown first.
	// The next report to the lister clears it.
	confirmed bool
}

// step is what happened to a container.
type step struct {
	id pleg.ContainerID
	to pleg.EventType
}

// shown is how a step became known.
type shown struct {
	at time.Time
	by source
}

type source uint8

const (
	// byEvent: an event announced that it had happened, but did not show the container then.
	byEvent source = iota
	// byList: a list showed it first.
	byList
	// byListOnly: a list showed it, and that no event announces it is no reason to doubt.
	byListOnly
)

func newAnnouncements(lister StreamJudge, counter prometheus.Counter) announcements {
	return announcements{lister: lister, counter: counter, recent: make(map[step]shown)}
}

// add remembers a step. If there is no room, the oldest one is forgotten.
func (a *announcements) add(s step, by source, now time.Time) {
	if _, ok := a.recent[s]; ok {
		return
	}
	if len(a.order) == maxRecent {
		a.remove(a.order[0])
		a.order = a.order[1:]
	}
	a.recent[s] = shown{now, by}
	a.order = append(a.order, s)
	if by == byList {
		a.due++
	}
}

// remove forgets a step. Its place in the order stays without meaning.
func (a *announcements) remove(s step) {
	if a.recent[s].by == byList {
		a.due--
	}
	delete(a.recent, s)
}

// announced reports whether an event announced a step but did not show the container then.
func (a *announcements) announced(id pleg.ContainerID, to pleg.EventType) bool {
	s, ok := a.recent[step{id, to}]
	return ok && s.by == byEvent
}

// count forgets what is too old, counts the changes that are unannounced by now, and
// reports those that a stream failed to announce while it was up.
func (a *announcements) count(now time.Time) {
	missed := 0
	for len(a.order) > 0 {
		s := a.recent[a.order[0]] // too old if it was removed
		if now.Sub(s.at) <= missedAfter {
			break
		}
		if s.by != byEvent {
			a.counter.Inc()
		}
		if s.by == byList {
			missed++
		}
		a.remove(a.order[0])
		a.order = a.order[1:]
	}
	if missed > 0 {
		a.confirmed = false
		a.lister.ChangesUnannounced(missed)
	}
}

// expect takes the events between the last observation of a pod and a listing.
// What an inspection still owes the subscribers is not among them. A stream that has
// ended since is not blamed, nor is one that does not announce the removal of a dead
// pod: dead pods are listed for that.
func (a *announcements) expect(events []pleg.Event, now time.Time, had *pleg.Pod, broke bool) {
	a.confirm(events)
	dead := isDead(had)
	for _, ev := range events {
		switch {
		case ev.Type == stage.ContainerChanged || ev.Type == pleg.ContainerCreated:
		case broke || dead && ev.Type == pleg.ContainerRemoved:
			a.add(step{ev.ContainerID, ev.Type}, byListOnly, now)
		default:
			a.add(step{ev.ContainerID, ev.Type}, byList, now)
		}
	}
}

// confirm takes the events that a list showed.
func (a *announcements) confirm(events []pleg.Event) {
	for _, ev := range events {
		a.confirmed = a.confirmed || a.announced(ev.ContainerID, ev.Type)
	}
}

// noteHint notes a CRI event of a pod. What came before it in the container's life need not be
// announced any more. CRI-O may announce the start of a container after its end, or never.
func (a *announcements) noteHint(h *pleg.Hint, had *pleg.Pod, now time.Time) {
	for _, t := range announces(h) {
		s := step{id: h.Container, to: t}
		if a.recent[s].by != byEvent {
			a.remove(s)
			a.confirmed = true
		}
		if c := containerOf(h.Pod, h.Container); c == nil || c.State > h.State || t == pleg.ContainerStarted && ranUnseen(h, had) {
			a.add(s, byEvent, now)
		}
	}
}

func announces(h *pleg.Hint) []pleg.EventType {
	switch {
	case h.Removed:
		return []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied, pleg.ContainerRemoved}
	case h.State == pleg.StateExited:
		return []pleg.EventType{pleg.ContainerStarted, pleg.ContainerDied}
	case h.State == pleg.StateRunning:
		return []pleg.EventType{pleg.ContainerStarted}
	default:
		return nil
	}
}

// ranUnseen reports whether an event announces the end of a container that nothing showed
// running, and its status says that it has run.
func ranUnseen(h *pleg.Hint, had *pleg.Pod) bool {
	if before := containerOf(had, h.Container); h.State != pleg.StateExited || before != nil && before.State != pleg.StateCreated {
		return false // it was told, or its state is unknown
	}
	c := h.Status.Container(h.Container)
	return c != nil && !c.StartedAt.IsZero()
}

// starts returns the pod as it was when a container ran that an observation shows
// exited, if an event announced its start and nothing showed it running; otherwise nil.
func (a *announcements) starts(had, has *pleg.Pod) *pleg.Pod {
	if has == nil || len(a.recent) == 0 {
		return nil
	}
	var pod *pleg.Pod
	for n, c := range has.Containers {
		if c.State != pleg.StateExited || !a.announced(c.ID, pleg.ContainerStarted) {
			continue
		}
		if before := containerOf(had, c.ID); before != nil && before.State >= pleg.StateRunning {
			continue
		}
		if pod == nil {
			clone := *has
			clone.Containers = slices.Clone(has.Containers)
			pod = &clone
		}
		running := *c
		running.State = pleg.StateRunning
		pod.Containers[n] = &running
	}
	return pod
}

// judge ends a listing. It reports whether something that the listing showed may still be
// announced.
func (a *announcements) judge(l stage.Listing) (open bool) {
	if a.due > 0 {
		return true
	}
	if l.StreamUp && !l.StreamBroke {
		a.lister.ChangesAnnounced(a.confirmed)
	}
	a.confirmed = false
	return false
}

// admitNewPod reports whether one more pod that only an event has shown may be
// recorded before the next listing, so that a runtime which makes up pods does
// not fill the memory.
func (a *announcements) admitNewPod() bool {
	a.newPods++
	return a.newPods <= maxRecent
}
