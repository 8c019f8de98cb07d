package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// settle is an input: how a change ended, or that its inspection hangs.
type settle struct{ stage.Settled }

func (s settle) apply(m *machine, now time.Time) {
	rec := m.records[s.UID]
	switch {
	case s.Hangs:
		m.backlog.ended(rec, all) // nobody waits for it
	case s.Err != nil || s.Superseded:
		m.settleFailed(rec, s.Settled, now)
	default:
		m.settleCommitted(rec, now)
	}
}

// settleCommitted moves a record on, and compares it at once with the newest answer.
func (m *machine) settleCommitted(rec *record, now time.Time) {
	m.do.count.attempts += skippedAttempts(rec.old, rec.sent.pod)
	m.noteRemoved(rec)
	inspected := rec.state == inspecting
	rec.commit()
	m.release(rec, inspected, now)
	until := rec.sent.asked.At
	switch {
	case rec.current == nil && rec.old == nil && len(rec.passed) == 0:
		m.backlog.settle(rec)
		m.forget(rec)
	case rec.current != nil && !rec.differs():
		m.backlog.settle(rec)
		if rec.asked != rec.sent.asked {
			m.do.touch = append(m.do.touch, touch{rec.uid, rec.asked.At})
		}
	default:
		m.backlog.ended(rec, rec.sent.listings)
		rec.until = until
		m.consider(rec, until, m.backlog.listings+1, now)
		m.flush()
	}
}

// settleFailed leaves the record where it was. If the pod is gone, nobody waits for another
// inspection; otherwise the next answer finds the change again.
func (m *machine) settleFailed(rec *record, s stage.Settled, now time.Time) {
	rec.state, rec.retry = failed, true
	rec.reinspect = rec.reinspect || rec.sent.reinspect
	if s.Superseded {
		m.settleSuperseded(rec, now)
		return
	}
	switch {
	case rec.current == nil:
		m.consider(rec, rec.until, m.backlog.listings+1, now)
		return
	case s.Cut:
		m.settleCut(rec, now)
		return
	case s.Hung, s.Late:
		if m.quarantines.add(rec, s, now) {
			m.do.notes = append(m.do.notes, note{quarantined, rec, []any{
				"age", s.Took, "failedLate", s.Late, "nextTry", rec.quarantine.due.Sub(now), "err", s.Err,
			}})
		}
	case rec.quarantine != nil: // it does not hang any more: the next answer is enough
		rec.quarantine.seen = false
		m.quarantines.wait(rec, now)
	}
	m.backlog.ended(rec, all)
	m.do.relistSoon = true
}

// settleCut starts an inspection again that a request has ended.
func (m *machine) settleCut(rec *record, now time.Time) {
	rec.cuts++
	if rec.quarantine != nil {
		rec.quarantine.seen = true
		m.quarantines.request(rec, now)
		return
	}
	m.enqueue(rec, rec.until, m.backlog.listings+1, now)
	m.flush()
}

// settleSuperseded goes on with what the newest answer shows. What was being inspected is
// told as it was listed.
func (m *machine) settleSuperseded(rec *record, now time.Time) {
	rec.state, rec.retry = settled, false
	m.release(rec, false, now)
	m.addPassed(rec, overlooked(rec.old, nil, rec.sent.pod, rec.current))
	if rec.current != nil && !rec.changed() {
		m.backlog.settle(rec)
		m.do.touch = append(m.do.touch, touch{rec.uid, rec.asked.At})
		return
	}
	m.consider(rec, rec.until, m.backlog.listings+1, now)
	m.flush()
}

// release ends the quarantine of a pod.
func (m *machine) release(rec *record, inspected bool, now time.Time) {
	q := rec.quarantine
	if q == nil {
		return
	}
	m.do.notes = append(m.do.notes, note{released, rec, []any{
		"gone", rec.current == nil, "after", now.Sub(q.since), "hung", q.times,
	}})
	m.quarantines.release(rec, inspected, now)
}

// noteRemoved remembers the containers that a committed change told as removed: their CRI
// events may come late.
func (m *machine) noteRemoved(rec *record) {
	each(rec.old, func(c *pleg.Container, _ bool) {
		if !hasContainer(rec.sent.pod, c.ID) {
			m.lives.removed(c.ID)
		}
	})
	for _, p := range rec.passed[:rec.sent.passed] {
		if !hasContainer(rec.sent.pod, p.container.ID) {
			m.lives.removed(p.container.ID)
		}
	}
}
