package differ

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// listing is an input: the answer to a list of all pods.
type listing struct{ stage.Listing }

func (l *listing) apply(m *machine) {
	m.do.unannounced += m.announced.list()
	for _, ended := range []bool{false, true} { // at a start, pods that run come first
		for _, pod := range l.Pods {
			if hasEnded(pod) == ended {
				rec := m.recordOf(pod.UID)
				rec.listing = l.Began
				m.compare(rec, pod, l)
			}
		}
	}
	for uid, rec := range m.records {
		if rec.listing == l.Began {
			continue
		}
		m.compare(rec, nil, l)
		if rec.empty() {
			delete(m.records, uid)
		}
	}
	m.absent = l.Asked
	m.open = append(m.open, open{l.Asked, l.Relisted})
	m.do.observe, m.do.pending = l.At, m.behind(l.Began)
}

func hasEnded(pod *pleg.Pod) bool {
	ended := true
	each(pod, func(c *pleg.Container, _ bool) { ended = ended && c.State == pleg.StateExited })
	return ended
}

// compare compares what a listing has of one pod, nil for nothing.
func (m *machine) compare(rec *record, pod *pleg.Pod, l *listing) {
	if l.StreamUp && l.Began > rec.asked.Answered {
		m.announced.expect(rec.current, pod)
	}
	m.answer(rec, pod, l.Asked)
}

// observation is an input: the answer to a list of one pod.
type observation struct{ stage.Observation }

func (o *observation) apply(m *machine) {
	rec := m.recordOf(o.UID)
	if m.answer(rec, o.Pod, o.Asked) && rec.until == rec.asked {
		m.touch(rec)
	}
}

// answer applies an answer about a pod. It reports whether the answer counts: it must have begun
// after the newest known answer had arrived. Otherwise the pod is listed again, unless an answer
// that began later is known.
func (m *machine) answer(rec *record, pod *pleg.Pod, asked stage.Asked) bool {
	if asked.Began < rec.asked.Answered {
		if asked.Began > rec.asked.Began {
			m.do.relist = append(m.do.relist, rec.uid)
		}
		rec.named = cmp.Or(rec.named, pod)
		return false
	}
	m.pass(rec, pod, asked.Began)
	rec.current, rec.asked = pod, asked
	rec.named = cmp.Or(pod, rec.named)
	m.consider(rec)
	return true
}

// pass notes the containers that have come and gone, because the next answer lacks them.
func (m *machine) pass(rec *record, next *pleg.Pod, began uint64) {
	var sent *pleg.Pod
	if rec.inFlight {
		sent = rec.sent.pod
	}
	if (rec.inFlight || rec.next != nil) && rec.current != next && rec.current != sent {
		m.addPassed(rec, overlooked(rec.old, sent, rec.current, next))
	}
	if len(rec.heard) > 0 {
		m.addPassed(rec, m.heardOf(rec, next, began))
	}
}

// addPassed adds containers to report, each once.
func (m *machine) addPassed(rec *record, over []passed) {
	for _, p := range over {
		switch {
		case slices.ContainsFunc(rec.passed, func(o passed) bool { return o.container.ID == p.container.ID }):
		case len(rec.passed) >= maxPassed:
			m.do.lost++
		default:
			rec.passed = append(rec.passed, p)
		}
		rec.named = cmp.Or(rec.named, p.pod)
	}
}

// consider decides what follows from the newest answer: nothing, an inspection, as soon as there
// is a slot, or the end of the pod, which needs no inspection.
func (m *machine) consider(rec *record) {
	if rec.inFlight {
		if rec.superseded() {
			m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, Gone: true})
		}
		return
	}
	queued := rec.next != nil && rec.quarantine == nil
	c := rec.change()
	rec.next = c
	if queued && (c == nil || c.Pod == nil) {
		m.queue = slices.DeleteFunc(m.queue, func(r *record) bool { return r == rec })
	}
	if rec.current == nil {
		m.release(rec, false)
	}
	switch {
	case c == nil: // only the order differs, or nothing was told of it
		rec.settle()
		return
	case rec.quarantine != nil: // nobody waits for it
		c.Retry = true
		return
	case rec.owes == 0:
		rec.owes = m.absent.Began + 1
	}
	if c.Pod == nil {
		rec.send(c)
		m.do.leaving = append(m.do.leaving, *c)
	} else if !queued {
		if len(m.queue) == 0 {
			m.moved = m.now
		}
		m.queue = append(m.queue, rec)
	}
}
