package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// settle is an input: how a change ended, or that its inspection hangs.
type settle struct{ stage.Settled }

func (s settle) apply(m *machine) {
	rec := m.records[s.UID]
	if s.Hangs {
		rec.owes = 0 // nobody waits for it
		return
	}
	rec.inFlight, m.moved = false, m.now
	switch {
	case s.Superseded:
		m.settleSuperseded(rec)
	case s.Err != nil:
		m.settleFailed(rec, s.Settled)
	default:
		m.settleCommitted(rec)
	}
}

// settleCommitted moves a record on.
func (m *machine) settleCommitted(rec *record) {
	m.noteRemoved(rec)
	rec.commit()
	m.release(rec, true)
	m.goOn(rec)
}

// settleSuperseded publishes what was being inspected as it was listed.
func (m *machine) settleSuperseded(rec *record) {
	rec.retry, rec.reinspect, rec.replaced = false, rec.reinspect || rec.sent.reinspect, true
	m.release(rec, false)
	m.addPassed(rec, overlooked(rec.old, nil, rec.sent.pod, rec.current))
	m.goOn(rec)
}

// goOn compares a pod at once with the newest answer, as its change has ended.
func (m *machine) goOn(rec *record) {
	if rec.differs() {
		m.consider(rec)
		return
	}
	rec.settle()
	if rec.asked != rec.sent.asked {
		m.touch(rec)
	}
}

// settleFailed leaves the record where it was. If the pod is gone, nobody waits for another
// inspection; otherwise the next answer finds the change again, or the retry of a pod that hangs.
func (m *machine) settleFailed(rec *record, s stage.Settled) {
	rec.retry, rec.reinspect = true, rec.reinspect || rec.sent.reinspect
	switch {
	case rec.current == nil:
		m.consider(rec)
		return
	case s.Hung, s.Late:
		if m.quarantines.add(rec, s, m.now) {
			m.do.quarantined = append(m.do.quarantined, []any{
				"podUID", rec.uid, "pod", rec.podName(), "age", s.Took, "failedLate", s.Late,
				"nextTry", rec.quarantine.NextTry.Sub(m.now), "err", s.Err,
			})
		}
	case rec.quarantine != nil: // it does not hang any more: the next answer is enough
		m.quarantines.wait(rec, m.now)
	}
	rec.owes = 0
	m.do.relistSoon = true
	if rec.quarantine != nil && rec.asked != rec.sent.asked {
		m.consider(rec)
	}
}

// release ends the quarantine of a pod.
func (m *machine) release(rec *record, inspected bool) {
	q := rec.quarantine
	if q == nil {
		return
	}
	m.do.released = append(m.do.released, []any{
		"podUID", rec.uid, "pod", rec.podName(), "gone", rec.current == nil, "after", m.now.Sub(q.Since).Round(time.Millisecond), "hung", q.Hung,
	})
	m.quarantines.release(rec, inspected, m.now)
}

// noteRemoved remembers the containers that a committed change reported as removed: their CRI
// events may come late.
func (m *machine) noteRemoved(rec *record) {
	note := func(c *pleg.Container, _ bool) {
		if !hasContainer(rec.sent.pod, c.ID) {
			m.removed.add(c.ID)
		}
	}
	each(rec.old, note)
	for _, p := range rec.passed[:rec.sent.passed] {
		note(p.container, p.sandbox)
	}
}
