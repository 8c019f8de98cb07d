package differ

import (
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// machine is the knowledge of the differ. step applies one input and returns its effects. The
// machine uses no clock, channel, cache, log or metric, and calls nobody.
type machine struct {
	records map[pleg.PodUID]*record
	// absent is the newest listing: it is the answer about the pods without a record.
	absent stage.Asked
	// early are the observations that came before the first listing.
	early []observation

	queue []*record // pods that wait for an inspector
	moved time.Time // the time at which a change was last accepted, or ended
	// found is the time at which the last pod of the queue was found, taken when a change was last
	// accepted.
	found, taken time.Time
	quarantines  quarantines
	doubts       doubts
	backlog      backlog
	lives        lives
	// streamUp is set if the event stream was up when the newest listing began.
	streamUp     bool
	expectations expectations

	// now and do are of the step in progress.
	now time.Time
	do  effects
}

func newMachine(o Options) machine {
	m := machine{
		records: make(map[pleg.PodUID]*record), quarantines: newQuarantines(o.RelistPeriod, o.MaxQuarantine, o.Inspectors),
		doubts: doubts{first: o.RelistPeriod, longest: max(o.RelistPeriod, o.MaxQuarantine)},
	}
	m.expectations.waits = make(map[one]*expectation)
	if !o.KubeletEvents {
		m.lives.told = make(map[one]kind)
	}
	return m
}

// input is one input of a step.
type input interface{ apply(m *machine) }

// effects are the results of a step, to be carried out in this order.
type effects struct {
	// quarantined and released are for the log, foundByAll, foundByOne and lost for the counters.
	quarantined, released        [][]any
	foundByAll, foundByOne, lost int
	// touch are pods whose answer equals the cache, observe is a listing that
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
	m.do.mark = m.backlog.complete(m.records)
	m.do.lost, m.lives.lost = m.lives.lost, 0
	return m.do
}

// patience is the time without an accepted or ended change after which the last pod of the queue
// comes first. If the first pods hang, the last one may be healthy, and its inspection then shows
// that they hang.
const patience = 500 * time.Millisecond

// next returns the changes that the inspector may accept now: of a pod in the queue, and of one that is in
// quarantine or in doubt. again is the time at which the result changes if no input comes. It changes
// nothing.
func (m *machine) next(now time.Time) (inspect, retry *stage.Change, again time.Time) {
	retry, again = m.quarantines.next(len(m.queue) > 0, now)
	if retry == nil && len(m.queue) == 0 {
		var due time.Time
		retry, due = m.doubts.next(now)
		again = stage.Earlier(again, due)
	}
	again = stage.Earlier(again, m.expectations.next)
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

// late returns the change that was found after the last change was accepted; nil if there is none.
func (m *machine) late() *stage.Change {
	if len(m.queue) == 0 || !m.found.After(m.taken) {
		return nil
	}
	return m.queue[len(m.queue)-1].next
}

// accepted is an input: a change that the inspector has accepted.
type accepted struct{ change *stage.Change }

func (a accepted) apply(m *machine) {
	rec := m.records[a.change.UID]
	if rec.phase == queued {
		m.dequeue(rec)
	}
	m.moved, m.taken = m.now, m.now
	rec.accepted(a.change)
}

// carryOut does the work that a method of a record returned.
func (m *machine) carryOut(rec *record, do todo) {
	if do.relist {
		m.do.relist = append(m.do.relist, rec.uid)
	}
	if do.cancel {
		m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, Gone: true})
	}
	if do.touch {
		m.touch(rec)
	}
	if do.dequeue {
		m.dequeue(rec)
	}
	if do.enqueue {
		if len(m.queue) == 0 {
			m.moved = m.now
		}
		m.queue, m.found = append(m.queue, rec), m.now
	}
	if do.leave != nil {
		m.do.leaving = append(m.do.leaving, *do.leave)
	}
}

// dequeue takes a pod out of the queue.
func (m *machine) dequeue(rec *record) {
	if m.queue[0] == rec { // without moving the rest, which may be thousands
		pop(&m.queue)
		return
	}
	i := slices.Index(m.queue, rec)
	m.queue = slices.Delete(m.queue, i, i+1)
}

// release takes a pod out of quarantine.
func (m *machine) release(rec *record, inspected bool) {
	q := m.quarantines.release(rec, inspected, m.now)
	m.do.released = append(m.do.released, []any{
		"podUID", q.UID, "pod", q.Namespace + "/" + q.Name, "gone", rec.current == nil, "after", m.now.Sub(q.Since).Round(time.Millisecond), "hung", q.Hung,
	})
}

// touch notes that the cache contains the newest answer.
func (m *machine) touch(rec *record) { m.do.touch = append(m.do.touch, touch{rec.uid, rec.asked.At}) }

// recordOf returns the record of a pod, a new one if there is none. The record stays until a
// listing shows that there is no such pod.
func (m *machine) recordOf(uid pleg.PodUID) *record {
	rec := m.records[uid]
	if rec == nil {
		rec = &record{uid: uid, asked: m.absent, until: m.absent}
		m.records[uid] = rec
	}
	return rec
}
