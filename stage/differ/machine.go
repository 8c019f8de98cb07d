package differ

import (
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// machine is what the differ knows, and its rules. step applies one input and returns what is
// to be done. The machine has no clock, channel, cache, log or metric, and calls nobody.
type machine struct {
	infer bool // Options.InferStarts

	records map[pleg.PodUID]*record
	// absent is the newest answer about the pods that have no record.
	absent stage.Asked
	// requested are the reinspections of pods without a record: the next listing
	// may have them.
	requested map[pleg.PodUID]struct{}

	queue       queue[*record] // pods that wait for an inspector
	quarantines quarantines
	backlog     backlog
	lives       lives
	announced   announced

	do effects // of the step in progress
	// later and pending are scratch space of a listing.
	later   []*record
	pending []*pleg.Pod
}

// input is what a step applies.
type input interface {
	apply(m *machine, now time.Time)
}

// effects is what a step wants done, in this order.
type effects struct {
	notes []note
	count counts
	// touch are pods that an answer found as the cache has them, observe is a listing that
	// covers all pods except the pending ones, keep are statuses that may soon be gone.
	touch   []touch
	observe bool
	at      time.Time
	pending []*pleg.Pod
	keep    []*pleg.ContainerStatus
	census  census // of a listing
	// relist are pods to list again, relistSoon asks for a list of all within the period.
	relist     []pleg.PodUID
	relistSoon bool
	// leaving are changes of pods that are gone. cancel ends inspections.
	leaving []stage.Change
	cancel  []stage.Cancel
	mark    stage.Mark // unless Current is zero
	// wake is when to step again if nothing happens; zero if never.
	wake time.Time
}

type touch struct {
	uid pleg.PodUID
	at  time.Time
}

// note is for the log.
type note struct {
	of   noted
	rec  *record
	args []any
}

type noted uint8

const (
	listedTwice noted = iota
	quarantined
	released
)

// counts are added to the counters.
type counts struct{ duplicates, stale, unannounced, lost, attempts int }

// step applies an input.
func (m *machine) step(in input, now time.Time) effects {
	m.do = effects{}
	in.apply(m, now)
	list, wake := m.quarantines.check(now)
	m.do.relistSoon, m.do.wake = m.do.relistSoon || list, wake
	m.do.mark, _ = m.backlog.complete()
	return m.do
}

// next returns the changes that the inspector may accept now: of the first pod in the queue,
// and of a quarantined one. It changes nothing.
func (m *machine) next(now time.Time) (inspect, retry stage.Change) {
	waits := m.queue.len() > 0
	if waits {
		inspect, _ = m.queue.first().change(m.infer)
	}
	if rec := m.quarantines.next(waits, now); rec != nil {
		retry, _ = rec.change(m.infer)
		retry.Retry, retry.Timeout = true, m.quarantines.timeout(rec)
	}
	return inspect, retry
}

// accepted is a change that the inspector has accepted.
type accepted struct{ change *stage.Change }

func (a accepted) apply(m *machine, _ time.Time) {
	rec := m.records[a.change.UID]
	if rec.state == queued {
		m.queue.pop()
	} else {
		rec.quarantine.urgent = false
	}
	delete(m.requested, rec.uid) // served, as in the kubelet
	rec.send(*a.change, m.backlog.listings)
}

// tick is the passing of time.
type tick struct{}

func (tick) apply(*machine, time.Time) {}

// request is what is asked for one pod: the end of its wait, of an inspection that hangs, or
// a reinspection.
type request struct {
	uid            pleg.PodUID
	cut, reinspect bool
}

func (r request) apply(m *machine, now time.Time) {
	rec := m.records[r.uid]
	if rec != nil && rec.quarantine != nil {
		m.quarantines.request(rec, now)
	}
	if rec != nil && r.cut {
		m.cut(rec, now)
	}
	if !r.reinspect {
		return
	}
	m.do.relistSoon = true
	if rec != nil {
		rec.reinspect = true
	}
	if (rec == nil || rec.current == nil) && len(m.requested) < maxHeard { // it may be there already
		m.requested[r.uid] = struct{}{}
	}
}

// cut ends an inspection that hangs: whoever asks knows that something has changed. While
// nothing else shows that the inspection hangs, each cut waits twice as long as the last one,
// so that requests do not starve a slow runtime.
func (m *machine) cut(rec *record, now time.Time) {
	if rec.state != inspecting || now.Sub(rec.cut) < m.quarantines.first {
		return
	}
	rec.cut = now
	m.do.cancel = append(m.do.cancel, stage.Cancel{UID: rec.uid, After: m.quarantines.first << min(rec.cuts, 10)})
}

// recordOf returns the record of a pod, a new one if there is none.
func (m *machine) recordOf(uid pleg.PodUID) *record {
	rec := m.records[uid]
	if rec == nil {
		rec = &record{uid: uid, asked: m.absent}
		m.records[uid] = rec
	}
	return rec
}

// forget drops the record of a pod that is gone and told. Of a pod without a record, no answer
// counts that began before that one had arrived.
func (m *machine) forget(rec *record) {
	if m.absent.Answered < rec.asked.Answered {
		m.absent.Answered, m.absent.Began = rec.asked.Answered, min(m.absent.Began, rec.asked.Began)
	}
	delete(m.records, rec.uid)
}

// queue is first in, first out. It reuses its memory, which stays within twice its
// greatest length.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) first() T { return q.items[q.head] }

// peek is first, or nothing.
func (q *queue[T]) peek() (first T) {
	if q.len() > 0 {
		first = q.first()
	}
	return first
}

func (q *queue[T]) push(items ...T) { q.items = append(q.items, items...) }

func (q *queue[T]) pop() {
	var none T
	q.items[q.head] = none
	q.head++
	if q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
}

// remove removes the items that match, wherever they are.
func (q *queue[T]) remove(match func(T) bool) {
	kept := q.items[:q.head]
	for _, item := range q.items[q.head:] {
		if !match(item) {
			kept = append(kept, item)
		}
	}
	clear(q.items[len(kept):])
	q.items = kept
}
