package differ

import (
	"container/list"
	"sync/atomic"
	"time"
)

// named is the number of waiting pods that are published.
const named = 3

// WaitingPod is a pod that has changed and was not inspected with success since.
type WaitingPod struct {
	Name  string // namespace/name
	Since time.Time
}

// waiting has the records that are not settled, in the order in which they changed.
type waiting struct {
	records list.List
	// count and first are copies for other goroutines: the number of records, and the
	// first few of them.
	count atomic.Int64
	first atomic.Pointer[[]WaitingPod]
}

type waiter struct {
	rec   *record
	since time.Time
}

// add notes that a pod has changed.
func (w *waiting) add(rec *record) {
	rec.waiting = w.records.PushBack(waiter{rec, time.Now()})
	w.count.Add(1)
	if w.records.Len() <= named {
		w.publish()
	}
}

// remove notes that a pod has settled.
func (w *waiting) remove(rec *record) {
	since := w.records.Remove(rec.waiting).(waiter).since
	rec.waiting = nil
	w.count.Add(-1)
	if first := *w.first.Load(); w.records.Len() < named || !since.After(first[len(first)-1].Since) {
		w.publish()
	}
}

func (w *waiting) publish() {
	first := make([]WaitingPod, 0, named)
	for e := w.records.Front(); e != nil && len(first) < named; e = e.Next() {
		waits := e.Value.(waiter)
		pod := waits.rec.nameOf(nil)
		first = append(first, WaitingPod{Name: pod.Namespace + "/" + pod.Name, Since: waits.since})
	}
	w.first.Store(&first)
}

// Waiting returns the number of pods that have changed and were not inspected with
// success since, and up to three of them that changed first. It is safe for concurrent
// use. The slice must not be modified.
func (d *Differ) Waiting() (pods int, first []WaitingPod) {
	if published := d.waiting.first.Load(); published != nil {
		first = *published
	}
	return int(d.waiting.count.Load()), first
}
