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
	// expected are changes that a listing showed first. tolerated are those of them
	// that are no reason to doubt the stream. announced are changes of which an event
	// reported only that they happened: it did not show the container then.
	expected  *recent[step]
	tolerated *recent[step]
	announced *recent[step]
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

func newAnnouncements(lister StreamJudge, counter prometheus.Counter) announcements {
	return announcements{
		lister:    lister,
		counter:   counter,
		expected:  newRecent[step](missedAfter, maxRecent),
		tolerated: newRecent[step](missedAfter, maxRecent),
		announced: newRecent[step](missedAfter, maxRecent),
	}
}

// expect takes the events between the last observation of a pod and a listing.
// What an inspection still owes the subscribers is not among them. A stream that has
// ended since is not blamed, nor is one that does not announce the removal of a dead
// pod: dead pods are listed for that.
func (a *announcements) expect(events []pleg.Event, now time.Time, had *pleg.Pod, broke bool) {
	dead := isDead(had)
	for _, ev := range events {
		s := step{id: ev.ContainerID, to: ev.Type}
		if ev.ContainerID == "" || ev.Type == pleg.ContainerChanged {
			continue
		}
		if a.announced.has(s, now) {
			a.confirmed = true
			continue
		}
		if broke || dead && ev.Type == pleg.ContainerRemoved {
			a.tolerated.add(s, now)
		} else {
			a.expected.add(s, now)
		}
	}
}

// confirm takes the events that a single-pod list showed.
func (a *announcements) confirm(events []pleg.Event, now time.Time) {
	for _, ev := range events {
		if a.announced.has(step{id: ev.ContainerID, to: ev.Type}, now) {
			a.confirmed = true
		}
	}
}

// hear takes a CRI event of a pod. What came before it in the container's life need not be
// announced any more. CRI-O may announce the start of a container after its end, or never.
func (a *announcements) hear(h *pleg.Hint, had *pleg.Pod, now time.Time) {
	a.count(now)
	for _, t := range announces(h) {
		s := step{id: h.Container, to: t}
		if a.expected.remove(s) || a.tolerated.remove(s) {
			a.confirmed = true
		}
		if c := containerOf(h.Pod, h.Container); c == nil || c.State > h.State || t == pleg.ContainerStarted && ranUnseen(h, had) {
			a.announced.add(s, now)
		}
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
func (a *announcements) starts(had, has *pleg.Pod, now time.Time) *pleg.Pod {
	if has == nil || a.announced.empty() {
		return nil
	}
	var pod *pleg.Pod
	for n, c := range has.Containers {
		if c.State != pleg.StateExited || !a.announced.has(step{id: c.ID, to: pleg.ContainerStarted}, now) {
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

// count counts the changes that are unannounced by now, and reports those that a
// stream failed to announce while it was up.
func (a *announcements) count(now time.Time) {
	missed := 0
	a.tolerated.expire(now, func(step) { a.counter.Inc() })
	a.expected.expire(now, func(step) {
		a.counter.Inc()
		missed++
	})
	if missed > 0 {
		a.confirmed = false
		a.lister.ChangesUnannounced(missed)
	}
}

// judge ends a listing that began so long after the one before. It reports whether
// something that the listing showed may still be announced; if not, the stream gets
// credit for that time.
func (a *announcements) judge(l stage.Listing, covers time.Duration) (open bool) {
	if !a.expected.empty() {
		return true
	}
	if l.StreamUp && !l.StreamBroke {
		a.lister.ChangesAnnounced(covers, a.confirmed)
	}
	a.confirmed = false
	return false
}

// admitNewPod reports whether one more pod that only an event has shown may be
// recorded before the next listing, so that a runtime which makes up pods does
// not fill the memory.
func (a *announcements) admitNewPod() bool {
	if a.newPods >= maxRecent {
		return false
	}
	a.newPods++
	return true
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

// skippedAttempts returns the number of containers that must have existed between
// two observations of a pod: the attempts between the last known one of a
// container's name and the next one seen.
func skippedAttempts(old, cur *pleg.Pod) int {
	if old == nil || cur == nil {
		return 0
	}
	skipped := 0
	for _, c := range cur.Containers {
		before, known := lastAttempt(old.Containers, c)
		if !known || hasContainer(old, c.ID) {
			continue
		}
		other, _ := lastAttempt(cur.Containers, c)
		skipped += int(c.Attempt - max(before, other) - 1)
	}
	return skipped
}

// lastAttempt returns the newest attempt before c among containers of its name.
func lastAttempt(containers []*pleg.Container, c *pleg.Container) (attempt uint32, known bool) {
	for _, other := range containers {
		if other.Name == c.Name && other.Attempt < c.Attempt {
			attempt, known = max(attempt, other.Attempt), true
		}
	}
	return attempt, known
}
