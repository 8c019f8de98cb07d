package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// listing is an input: the answer to a list of all pods.
type listing struct{ stage.Listing }

func (l *listing) apply(m *machine, now time.Time) {
	b := &m.backlog
	b.listings++
	m.announced.list(&m.do.count)
	for _, pod := range l.Pods {
		rec := m.recordOf(pod.UID)
		if rec.listing == b.listings {
			m.do.count.duplicates++
			m.do.notes = append(m.do.notes, note{listedTwice, rec, nil})
			continue
		}
		rec.listing = b.listings
		m.do.census.add(pod)
		m.compare(rec, pod, l, now)
	}
	for uid := range m.lives.heard { // a pod that no list has shown
		m.recordOf(uid)
	}
	for _, rec := range m.records {
		if rec.listing != b.listings {
			m.compare(rec, nil, l, now)
		}
	}
	m.flush()
	clear(m.requested)
	m.absent = l.Asked
	b.list(l.At, l.Relisted)
	m.pending = b.pending(m.pending[:0])
	m.do.observe, m.do.at, m.do.pending = true, l.At, m.pending
}

// compare compares what a listing has of one pod, nil for nothing.
func (m *machine) compare(rec *record, pod *pleg.Pod, l *listing, now time.Time) {
	if _, ok := m.requested[rec.uid]; ok {
		rec.reinspect = true
	}
	if l.StreamUp && l.Began > rec.asked.Answered {
		m.announced.expect(rec.current, pod)
	}
	m.answer(rec, pod, l.Asked, m.backlog.listings, now)
}

// observation is an input: the answer to a list of one pod.
type observation struct{ stage.Observation }

func (o *observation) apply(m *machine, now time.Time) {
	rec := m.recordOf(o.UID)
	if o.Pod == nil && rec.named == nil && m.lives.heard[o.UID] == nil && o.Began >= rec.asked.Answered {
		// Nothing is known of it: who waits for it learns that it is gone. The record stays until
		// the next listing, so that one that began earlier does not count.
		rec.asked = o.Asked
		m.do.touch = append(m.do.touch, touch{o.UID, o.At})
		return
	}
	if m.answer(rec, o.Pod, o.Asked, m.backlog.listings+1, now) && rec.state == settled {
		m.do.touch = append(m.do.touch, touch{o.UID, o.At})
	}
	m.flush()
}

// answer applies an answer about a pod, for which the listing of a number waits. It reports
// whether the answer counts: it must have begun after the newest one known had arrived.
// Otherwise the pod is listed again, unless an answer that began later is known.
func (m *machine) answer(rec *record, pod *pleg.Pod, asked stage.Asked, listing uint64, now time.Time) bool {
	if asked.Began < rec.asked.Answered {
		m.do.count.stale++
		if asked.Began > rec.asked.Began {
			m.do.relist = append(m.do.relist, rec.uid)
		}
		if rec.named == nil {
			rec.named = pod
		}
		if rec.named == nil { // nothing is known of it
			delete(m.records, rec.uid)
		} else {
			m.backlog.fallBehind(rec, rec.asked.At)
		}
		return false
	}
	before := rec.asked.At
	m.pass(rec, pod, asked.Began)
	rec.current, rec.asked = pod, asked
	if pod != nil {
		rec.named = pod
	}
	if rec.quarantine != nil {
		rec.quarantine.seen = true
	}
	m.consider(rec, before, listing, now)
	return true
}

// pass notes the containers that have come and gone, because the next answer lacks them.
func (m *machine) pass(rec *record, next *pleg.Pod, began uint64) {
	var over []passed
	if rec.state == queued || rec.state == inspecting {
		inFlight := rec.sent.pod
		if rec.state == queued {
			inFlight = nil
		}
		if rec.current != next && rec.current != inFlight {
			over = overlooked(rec.old, inFlight, rec.current, next)
		}
	}
	if len(m.lives.heard) > 0 {
		over = append(over, m.lives.answered(rec.uid, began, next)...)
	}
	m.addPassed(rec, over)
}

// addPassed adds containers to tell. What is told of one of them anyway is told once.
func (m *machine) addPassed(rec *record, over []passed) {
	for _, p := range over {
		n := slices.IndexFunc(rec.passed, func(o passed) bool { return o.container.ID == p.container.ID })
		switch {
		case n >= 0:
			rec.passed[n] = p
		case len(rec.passed) >= maxPassed:
			m.do.count.lost++
		default:
			rec.passed = append(rec.passed, p)
		}
		if rec.named == nil {
			rec.named = p.pod
		}
	}
}

// consider decides what follows from the newest answer.
func (m *machine) consider(rec *record, before time.Time, listing uint64, now time.Time) {
	switch rec.state {
	case leaving:
		m.backlog.fallBehind(rec, before)
		return
	case inspecting:
		m.backlog.fallBehind(rec, before)
		if rec.superseded() {
			m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, Gone: true})
		}
		return
	case queued:
		if rec.current != nil && rec.changed() {
			return
		}
		m.queue.remove(func(r *record) bool { return r == rec })
		rec.state = settled
	}
	switch {
	case rec.current == nil:
		m.leave(rec, before, listing, now)
	case !rec.changed():
		m.backlog.settle(rec)
	case rec.state == failed && rec.quarantine != nil:
		// It is offered as a retry once its wait has ended.
	default:
		m.enqueue(rec, before, listing, now)
	}
}

// enqueue has a pod wait for an inspector.
func (m *machine) enqueue(rec *record, before time.Time, listing uint64, now time.Time) {
	if _, ok := rec.change(m.infer); !ok { // only the order differs
		m.backlog.settle(rec)
		return
	}
	m.backlog.fallBehind(rec, before)
	m.backlog.wait(rec, listing, now)
	rec.state = queued
	if rec.current.Running() {
		m.queue.push(rec)
	} else {
		m.later = append(m.later, rec)
	}
}

// leave sends the change of a pod that is gone, which needs no inspection.
func (m *machine) leave(rec *record, before time.Time, listing uint64, now time.Time) {
	c, ok := rec.change(m.infer)
	if !ok {
		m.backlog.settle(rec)
		m.release(rec, false, now)
		m.forget(rec)
		return
	}
	m.backlog.fallBehind(rec, before)
	m.backlog.wait(rec, listing, now)
	rec.send(c, m.backlog.listings)
	m.do.leaving = append(m.do.leaving, c)
}

// flush queues the dead pods of a step behind those that run: a cold start reports first what
// matters most.
func (m *machine) flush() {
	m.queue.push(m.later...)
	clear(m.later)
	m.later = m.later[:0]
}
