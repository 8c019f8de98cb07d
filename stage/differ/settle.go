package differ

import (
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// settle is an input: how a change ended, or that its inspection hangs.
type settle struct{ stage.Settled }

func (s settle) apply(m *machine) {
	rec := m.records[s.UID]
	if s.How != stage.Hangs {
		m.moved = m.now
	}
	do := rec.ended(s.How, m.absent.Began, &m.lives)
	if do.release {
		m.release(rec, s.How == stage.Committed || s.How == stage.Contradicted)
	}
	m.carryOut(rec, do)
	switch {
	case s.How == stage.Contradicted && rec.current != nil && !m.lives.kubelet(): // the kubelet believes such a status
		m.doubts.add(rec, m.now)
	case s.How == stage.Committed:
		m.doubts.remove(rec)
	}
	if rec.phase == failed {
		m.failed(rec, s.Settled)
	}
}

// failed says when a pod whose inspection failed is inspected again: at its next answer, or after a
// wait if it hung or failed late.
func (m *machine) failed(rec *record, s stage.Settled) {
	m.do.relistSoon = true
	switch {
	case s.How == stage.FailedHung, s.How == stage.FailedLate:
		if held, entered := m.quarantines.add(rec, s, m.now); entered {
			m.do.quarantined = append(m.do.quarantined, []any{
				"podUID", rec.uid, "pod", rec.podName(), "age", s.Took, "failedLate", s.How == stage.FailedLate,
				"nextTry", held.NextTry.Sub(m.now), "err", s.Err,
			})
		}
	case rec.held: // the pod does not hang any more: the next answer is enough
		m.quarantines.wait(rec, m.now)
	}
}

// request is an input: a request for one pod. It asks for the end of a wait, for the end of an
// inspection that hangs, or for a reinspection.
type request struct {
	uid            pleg.PodUID
	cut, reinspect bool
}

func (r request) apply(m *machine) {
	rec := m.records[r.uid]
	if r.reinspect {
		rec = m.recordOf(r.uid) // the next listing may show it
		m.do.relistSoon = true
	}
	if rec == nil {
		return
	}
	do := rec.requested(r, m.absent.Began, &m.lives)
	if rec.held {
		m.quarantines.wait(rec, m.now)
	}
	m.carryOut(rec, do)
	if r.cut && rec.cut(m.quarantines.first, m.now) {
		m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, After: m.quarantines.patience(rec)})
	}
}
