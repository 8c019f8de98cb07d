package differ

import (
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// listing is an input: the answer to a list of all pods.
type listing struct{ stage.Listing }

func (l *listing) apply(m *machine) {
	number := m.backlog.listings + 1
	m.do.count[unannounced] += m.announced.list()
	for _, pod := range l.Pods {
		rec := m.recordOf(pod.UID)
		if rec.listing == number {
			m.do.count[duplicates]++
			m.note(listedTwice, rec)
			continue
		}
		rec.listing = number
		m.do.census.add(pod)
		m.compare(rec, pod, l)
	}
	for uid := range m.lives.heard { // a pod that no list has shown
		m.recordOf(uid)
	}
	for _, rec := range m.records {
		if rec.listing != number {
			m.compare(rec, nil, l)
		}
	}
	m.absent = l.Asked
	m.backlog.list(l.At, l.Relisted)
	m.pending = m.backlog.pending(m.pending[:0])
	m.do.observe, m.do.at, m.do.pending = true, l.At, m.pending
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
	if o.Pod == nil && rec.named == nil && m.lives.heard[o.UID] == nil && o.Began >= rec.asked.Answered {
		// Nothing is known of it: who waits for it learns that it is gone. The record stays until
		// the next listing, so that one that began earlier does not count.
		rec.asked = o.Asked
		m.touch(rec)
		return
	}
	if m.answer(rec, o.Pod, o.Asked) && rec.state == settled {
		m.touch(rec)
	}
}

// answer applies an answer about a pod. It reports whether the answer counts: it must have begun
// after the newest one known had arrived. Otherwise the pod is listed again, unless an answer that
// began later is known.
func (m *machine) answer(rec *record, pod *pleg.Pod, asked stage.Asked) bool {
	if asked.Began < rec.asked.Answered {
		m.do.count[stale]++
		if asked.Began > rec.asked.Began {
			m.do.relist = append(m.do.relist, rec.uid)
		}
		if rec.named == nil {
			rec.named = pod
		}
		if rec.named == nil { // nothing is known of it
			delete(m.records, rec.uid)
		} else {
			m.backlog.fallBehind(rec)
		}
		return false
	}
	m.pass(rec, pod, asked.Began)
	rec.current, rec.asked = pod, asked
	if pod != nil {
		rec.named = pod
	}
	m.consider(rec)
	return true
}

// pass notes the containers that have come and gone, because the next answer lacks them.
func (m *machine) pass(rec *record, next *pleg.Pod, began uint64) {
	if rec.state == queued || rec.state == inspecting {
		inFlight := rec.sent.pod
		if rec.state == queued {
			inFlight = nil
		}
		if rec.current != next && rec.current != inFlight {
			m.addPassed(rec, overlooked(rec.old, inFlight, rec.current, next))
		}
	}
	if len(m.lives.heard) > 0 {
		m.addPassed(rec, m.lives.answered(rec.uid, began, next))
	}
}

// addPassed adds containers to tell. What is told of one of them anyway is told once.
func (m *machine) addPassed(rec *record, over []passed) {
	for _, p := range over {
		n := slices.IndexFunc(rec.passed, func(o passed) bool { return o.container.ID == p.container.ID })
		switch {
		case n >= 0:
			rec.passed[n] = p
		case len(rec.passed) >= maxPassed:
			m.do.count[lost]++
		default:
			rec.passed = append(rec.passed, p)
		}
		if rec.named == nil {
			rec.named = p.pod
		}
	}
}

// consider decides what follows from the newest answer.
func (m *machine) consider(rec *record) {
	switch rec.state {
	case leaving, inspecting:
		m.backlog.fallBehind(rec)
		if rec.state == inspecting && rec.superseded() {
			m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, Gone: true})
		}
		return
	case queued:
		if rec.current != nil && rec.changed() {
			return
		}
		m.queue = slices.DeleteFunc(m.queue, func(r *record) bool { return r == rec })
		rec.state = settled
	}
	switch {
	case rec.current != nil && !rec.changed():
		m.backlog.settle(rec)
	case rec.current != nil && rec.state == failed && rec.quarantine != nil:
		// It is offered as a retry once its wait has ended.
	default:
		m.queueOrLeave(rec)
	}
}

// queueOrLeave has a pod wait for an inspector, or sends the change of one that is gone, which
// needs no inspection.
func (m *machine) queueOrLeave(rec *record) {
	c, ok := rec.change()
	if !ok { // only the order differs, or nothing was told of it
		m.backlog.settle(rec)
		if rec.current == nil {
			m.release(rec, false)
			m.forget(rec)
		}
		return
	}
	m.backlog.fallBehind(rec)
	m.backlog.owe(rec)
	if rec.current == nil {
		rec.send(c, m.backlog.listings)
		m.do.leaving = append(m.do.leaving, c)
		return
	}
	rec.state = queued
	m.queue = append(m.queue, rec)
}
