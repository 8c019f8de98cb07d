package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// machine is what the differ knows, and its rules. step applies one input and returns what is
// to be done. The machine has no clock, channel, cache, log or metric, and calls nobody.
type machine struct {
	records map[pleg.PodUID]*record
	// absent is the newest listing: it is the answer about the pods that have no record.
	absent stage.Asked

	queue       []*record // pods that wait for an inspector
	moved       time.Time // when one was last accepted, or ended
	quarantines quarantines
	open        []open // listings that are not complete
	heard       int    // containers in all of record.heard
	removed     removed
	announced   announced

	// now and do are of the step in progress.
	now time.Time
	do  effects
}

// input is what a step applies.
type input interface{ apply(m *machine) }

// effects is what a step wants done, in this order.
type effects struct {
	// quarantined and released are for the log, unannounced and lost for the counters.
	quarantined, released [][]any
	unannounced, lost     int
	// touch are pods that an answer found as the cache has them, observe is a listing that
	// covers all pods except the pending ones.
	touch   []touch
	observe time.Time // unless zero
	pending []*pleg.Pod
	// relist are pods to list again, relistSoon asks for a list of all within the period.
	relist     []pleg.PodUID
	relistSoon bool
	// leaving are changes of pods that are gone. cancel ends inspections.
	leaving []stage.Change
	cancel  []stage.Cancel
	mark    stage.Mark // unless Current is zero
}

type touch struct {
	uid pleg.PodUID
	at  time.Time
}

// step applies an input.
func (m *machine) step(in input, now time.Time) effects {
	m.do, m.now = effects{}, now
	in.apply(m)
	m.do.mark = m.complete()
	return m.do
}

// touch notes that the cache has the newest answer.
func (m *machine) touch(rec *record) { m.do.touch = append(m.do.touch, touch{rec.uid, rec.asked.At}) }

// patience is the time without a move after which the last pod of the queue comes first: where the
// first ones hang, it may be well, and then shows that they do.
const patience = 500 * time.Millisecond

// next returns the changes that the inspector may accept now: of a pod in the queue, and of a
// quarantined one. If nothing happens, it has another answer at the time again. It changes nothing.
func (m *machine) next(now time.Time) (inspect, retry *stage.Change, again time.Time) {
	retry, again = m.quarantines.next(len(m.queue) > 0, now)
	if last := len(m.queue) - 1; last >= 0 {
		inspect = m.queue[0].next
		if at := m.moved.Add(patience); at.After(now) {
			again = stage.Earlier(again, at)
		} else {
			inspect = m.queue[last].next
		}
	}
	return inspect, retry, again
}

// accepted is a change that the inspector has accepted.
type accepted struct{ change *stage.Change }

func (a accepted) apply(m *machine) {
	rec := m.records[a.change.UID]
	if i := slices.Index(m.queue, rec); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
	}
	m.moved = m.now
	rec.send(a.change)
}

// request is what is asked for one pod: the end of its wait, of an inspection that hangs, or
// a reinspection.
type request struct {
	uid            pleg.PodUID
	cut, reinspect bool
}

func (r request) apply(m *machine) {
	rec := m.records[r.uid]
	if r.reinspect {
		rec = m.recordOf(r.uid) // the next listing may have it
		rec.reinspect = true
		m.do.relistSoon = true
	}
	if rec == nil {
		return
	}
	rec.urgent = rec.urgent || r.cut || rec.quarantine != nil
	if rec.quarantine != nil {
		m.quarantines.wait(rec, m.now)
	}
	if rec.next != nil {
		m.consider(rec)
	}
	if r.cut {
		m.cut(rec)
	}
}

// cut ends an inspection that hangs: whoever asks knows that something has changed. While nothing
// else shows that the inspection hangs, each cut waits twice as long as the last cut, so that
// requests do not starve a slow runtime.
func (m *machine) cut(rec *record) {
	if !rec.inFlight || m.now.Sub(rec.cut) < m.quarantines.first {
		return
	}
	rec.cut = m.now
	after := m.quarantines.first
	if q := rec.quarantine; q != nil {
		after <<= min(q.Hung, 10)
	}
	m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, After: after})
}

// recordOf returns the record of a pod, a new one if there is none. It stays until a listing shows
// that there is no such pod.
func (m *machine) recordOf(uid pleg.PodUID) *record {
	rec := m.records[uid]
	if rec == nil {
		rec = &record{uid: uid, asked: m.absent, until: m.absent}
		m.records[uid] = rec
	}
	return rec
}

// pop removes the first of a queue.
func pop[T any](queue *[]T) {
	clear((*queue)[:1])
	*queue = (*queue)[1:]
}
