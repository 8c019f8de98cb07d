package differ

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// missedAfter is how late an event may be after the listing that shows what
	// it tells; later, it is missed.
	missedAfter = 5 * time.Second
	// maxRecent bounds what is remembered of single events.
	maxRecent = 4096
)

// missed counts what a listing shows although no event had announced it, the
// figure that KEP-3386 promised for the kubelet. What happened while a stream
// was down counts once there was one.
type missed struct {
	counter prometheus.Counter
	// expected are the changes that a listing has shown first; announced those
	// of which an event told nothing but that they happened.
	expected  *recent[step]
	announced *recent[step]
}

// step is what happened to a container.
type step struct {
	id pleg.ContainerID
	to pleg.EventType
	// broken is set if the stream has ended that was to announce it.
	broken bool
}

func newMissed(counter prometheus.Counter) missed {
	return missed{
		counter:   counter,
		expected:  newRecent[step](missedAfter, maxRecent),
		announced: newRecent[step](missedAfter, maxRecent),
	}
}

// shown takes the events between the last observation of a pod and a listing of
// all pods. What an inspection still owes the subscribers is not among them.
func (m *missed) shown(events []pleg.Event, now time.Time, broken bool) {
	for _, ev := range events {
		s := step{id: ev.ContainerID, to: ev.Type}
		if ev.ContainerID == "" || ev.Type == pleg.ContainerChanged || m.announced.has(s, now) {
			continue
		}
		s.broken = broken
		m.expected.add(s, now)
	}
}

// waits reports whether something shown may still be announced.
func (m *missed) waits() bool { return len(m.expected.since) > 0 }

// heard takes an event of the runtime. What came before it in the container's
// life need not be announced any more.
func (m *missed) heard(h *pleg.Hint, now time.Time) {
	for _, t := range announces(h) {
		s := step{id: h.Container, to: t}
		m.expected.remove(s)
		m.expected.remove(step{id: h.Container, to: t, broken: true})
		if h.Pod == nil {
			m.announced.add(s, now)
		}
	}
}

// count counts what is missed by now, and returns how much of it a stream that is
// up has failed to announce.
func (m *missed) count(now time.Time) (faults int) {
	m.expected.expire(now, func(s step) {
		m.counter.Inc()
		if !s.broken {
			faults++
		}
	})
	return faults
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

// skippedAttempts returns the number of containers that must have existed
// between two observations of a pod: the attempts between the last one known of
// a container's name and the next one seen.
func skippedAttempts(old, cur *pleg.Pod) int {
	if old == nil || cur == nil {
		return 0
	}
	skipped := 0
	for _, c := range cur.Containers {
		before, known := uint32(0), false
		for _, other := range old.Containers {
			if other.Name == c.Name && other.Attempt < c.Attempt {
				before, known = max(before, other.Attempt), true
			}
		}
		if !known || holds(old.Containers, c.ID) {
			continue
		}
		for _, other := range cur.Containers {
			if other.Name == c.Name && other.Attempt < c.Attempt {
				before = max(before, other.Attempt)
			}
		}
		skipped += int(c.Attempt - before - 1)
	}
	return skipped
}

func holds(containers []*pleg.Container, id pleg.ContainerID) bool {
	for _, c := range containers {
		if c.ID == id {
			return true
		}
	}
	return false
}
