package differ

import (
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// listing is an input: the answer to a list of all pods.
type listing struct{ stage.Listing }

func (l *listing) apply(m *machine) {
	if m.absent.Answered == 0 {
		for _, pod := range l.Pods {
			m.recordOf(pod.UID).foundBy(pod)
		}
		for _, o := range m.early {
			o.answer(m)
		}
		m.early = nil
	}
	for _, ended := range []bool{false, true} { // at a start, pods that run come first
		for _, pod := range l.Pods {
			if hasEnded(pod) == ended {
				rec := m.recordOf(pod.UID)
				rec.listedBy(l.Began)
				l.answer(m, rec, pod)
			}
		}
	}
	for uid, rec := range m.records {
		if rec.listed == l.Began {
			continue
		}
		l.answer(m, rec, nil)
		if rec.empty() {
			delete(m.records, uid)
		}
	}
	m.absent = l.Asked
	m.streamUp, m.lives.begun = l.StreamUp, m.lives.begun || l.StreamUp
	m.backlog.open = append(m.backlog.open, open{l.Asked, l.Relisted})
	m.do.observe, m.do.pending = l.At, m.backlog.behind(m.records, l.Began)
}

// answer applies the listing's answer about one pod.
func (l *listing) answer(m *machine, rec *record, pod *pleg.Pod) {
	if m.answer(rec, pod, l.Asked).found {
		m.do.foundByAll++
	}
}

// observation is an input: the answer to a list of one pod.
type observation struct{ stage.Observation }

func (o *observation) apply(m *machine) {
	if m.absent.Answered > 0 {
		o.answer(m)
	} else if len(m.early) < maxHeard {
		m.early = append(m.early, *o) // until the first listing shows the initial state
	}
}

// answer applies the answer about the pod.
func (o *observation) answer(m *machine) {
	rec := m.recordOf(o.UID)
	do := m.answer(rec, o.Pod, o.Asked)
	if do.found {
		m.do.foundByOne++
	}
	if do.counts && rec.until == rec.asked {
		m.touch(rec)
	}
}

// answer applies an answer about a pod.
func (m *machine) answer(rec *record, pod *pleg.Pod, asked stage.Asked) todo {
	do := rec.answered(pod, asked, m.absent.Began, &m.lives)
	m.carryOut(rec, do)
	if do.release {
		m.release(rec, false)
	}
	if do.found && m.streamUp {
		m.expectations.answered(rec, m.now)
	}
	return do
}

// apply notes an event that shows that a container has started, which no list has shown.
func (a Announcement) apply(m *machine) {
	m.expectations.hear(a.Hint, m.now)
	rec, id := m.records[a.Hint.UID], a.Hint.Container
	if !a.started() || !m.lives.begun || rec != nil && rec.shows(id) || m.lives.removed.has(one{a.Hint.UID, id}) {
		return
	}
	if h, ok := m.lives.hear(a); ok {
		m.recordOf(a.Hint.UID).hear(h)
	}
}
