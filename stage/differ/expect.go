package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// expectations are changes that a pod's lists must show soon, and that no event will announce. If the newest
// answer does not show such a change after a while, the pod is listed again, later with a wait that doubles.
// After mostWait the lists of all pods are enough.
type expectations struct {
	waits map[one]*expectation
	// next is the time at which the first wait ends, or earlier; zero if there is none.
	next time.Time
	// sandboxes is set once an event has announced the creation or the removal of a sandbox: CRI-O
	// announces neither.
	sandboxes bool
}

// expectation is about a container, or about the pod if the id is empty.
type expectation struct {
	what  expected
	wait  time.Duration
	due   time.Time
	tries int
}

type expected uint8

const (
	// toStart: a container was created. A start that fails is announced by nothing else.
	toStart expected = iota
	// toGo: a container or sandbox was removed. The runtime may list it for a moment longer.
	toGo
	// toEnd: a pod is without a container, or without a ready sandbox. Its sandbox goes soon.
	toEnd
)

// The start of a container takes 0.1 to 1 s, and seconds on a busy node. A removed container that a list
// still shows is gone some 0.1 s later. A start and the end of a pod may take seconds: the wait doubles
// only after sameWaits lists. A pod whose sandbox is ready may get its next container, as after a
// restart, so it is listed half as often.
const (
	startWait = time.Second
	goWait    = 300 * time.Millisecond
	endWait   = time.Second
	emptyWait = 2 * time.Second
	sameWaits = 10
	mostWait  = 10 * time.Second
	maxWaits  = 4096
)

// hear notes the expectations that follow from an event.
func (e *expectations) hear(h pleg.Hint, now time.Time) {
	of := one{h.UID, h.Container}
	if h.Container == h.Sandbox && (h.Removed || h.State == pleg.StateCreated) {
		e.sandboxes = true
	}
	switch {
	case h.UID == "" || h.Container == "":
	case h.Removed:
		e.add(of, toGo, goWait, now)
	case h.State == pleg.StateCreated:
		e.add(of, toStart, startWait, now)
	default:
		delete(e.waits, of)
	}
}

// answered notes the expectations that follow from an answer while the event stream is up. A pod
// that had ended in the previous answer, such as the pod of a job, may stay for days.
func (e *expectations) answered(rec *record, now time.Time) {
	of := one{pod: rec.uid}
	switch {
	case e.sandboxes || rec.current == nil:
	case (rec.old == nil || isReady(rec.old)) && !isReady(rec.current):
		e.add(of, toEnd, endWait, now)
	case rec.old != nil && len(rec.old.Containers) > 0 && len(rec.current.Containers) == 0:
		e.add(of, toEnd, emptyWait, now)
	}
}

func (e *expectations) add(of one, what expected, wait time.Duration, now time.Time) {
	if len(e.waits) >= maxWaits {
		return // lists of all pods find it
	}
	e.waits[of] = &expectation{what: what, wait: wait, due: now.Add(wait)}
	if e.next.IsZero() || e.next.After(now.Add(wait)) {
		e.next = now.Add(wait)
	}
}

// check returns the pods to list again, because their lists do not show the expected change.
func (e *expectations) check(records map[pleg.PodUID]*record, now time.Time) (again []pleg.PodUID) {
	if e.next.IsZero() || e.next.After(now) {
		return nil
	}
	e.next = time.Time{}
	for of, x := range e.waits {
		if !x.due.After(now) {
			if x.wait > mostWait || x.done(records[of.pod], of.id) {
				delete(e.waits, of)
				continue
			}
			again = append(again, of.pod)
			if x.tries++; x.what == toGo || x.tries >= sameWaits {
				x.wait *= 2
			}
			x.due = now.Add(x.wait)
		}
		if e.next.IsZero() || x.due.Before(e.next) {
			e.next = x.due
		}
	}
	return again
}

// done reports whether the newest answer shows the expected change. A container that was created has
// to be listed once.
func (x *expectation) done(rec *record, id pleg.ContainerID) bool {
	var pod *pleg.Pod
	if rec != nil {
		pod = rec.current
	}
	switch x.what {
	case toStart:
		return isBeyondCreated(pod, id) || x.tries > 0 && !hasContainer(pod, id)
	case toGo:
		return !hasContainer(pod, id)
	default:
		return !ends(pod)
	}
}

// ends reports whether a pod is about to go.
func ends(pod *pleg.Pod) bool {
	return pod != nil && (len(pod.Containers) == 0 || !isReady(pod))
}

// isReady reports whether a sandbox of a pod is ready.
func isReady(pod *pleg.Pod) bool {
	return slices.ContainsFunc(pod.Sandboxes, func(s *pleg.Container) bool { return s.State == pleg.StateRunning })
}

// elapsed is an input: time has passed.
type elapsed struct{}

func (elapsed) apply(m *machine) {
	m.do.relist = append(m.do.relist, m.expectations.check(m.records, m.now)...)
}
