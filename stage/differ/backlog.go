package differ

import (
	"container/list"
	"math"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// named is the number of waiting pods that are published.
const named = 3

// backlog has the pods that are behind the newest answers, in the order in which they fell
// behind, and the listings that wait for them.
//
// A listing is complete once each pod that it found changed has been inspected, well or not,
// or hangs. Listings are numbered: a pod owes them all from a number on, until its change has
// ended.
type backlog struct {
	behind  list.List // of *record
	waiting int       // those that wait for an inspection
	owing   int       // those that owe a listing
	// listings is the number of the newest listing, open are those that are not complete.
	listings uint64
	open     []open
	// changed is set when what is published has changed.
	changed bool
}

// open is a listing that is not complete.
type open struct {
	number  uint64
	at      time.Time
	left    int
	callers []chan<- error
}

// all is the number of a listing that never comes.
const all = math.MaxUint64

// fallBehind notes that the newest listing does not cover a pod.
func (b *backlog) fallBehind(rec *record, until time.Time) {
	if rec.lag == nil {
		rec.until = until
		rec.lag = b.behind.PushBack(rec)
	}
}

// wait notes that a pod waits for an inspection, for which the listing of a number waits.
func (b *backlog) wait(rec *record, listing uint64, now time.Time) {
	if !rec.waits {
		rec.waits, rec.since = true, now
		b.behind.MoveToBack(rec.lag)
		b.waiting++
		b.changed = b.changed || b.waiting <= named
	}
	if rec.owes == 0 {
		rec.owes = listing
		b.owing++
	}
}

// ended notes that the change of a pod has ended, well or not, as far as the listings up to a
// number wait for it.
func (b *backlog) ended(rec *record, upTo uint64) {
	if rec.owes == 0 || rec.owes > upTo {
		return
	}
	for n := range b.open {
		if l := &b.open[n]; rec.owes <= l.number && l.number <= upTo {
			l.left--
		}
	}
	if rec.owes = upTo + 1; upTo == all {
		rec.owes = 0
		b.owing--
	}
}

// settle notes that everything known of a pod is delivered.
func (b *backlog) settle(rec *record) {
	b.ended(rec, all)
	if rec.lag != nil {
		b.behind.Remove(rec.lag)
		rec.lag = nil
	}
	if rec.waits {
		rec.waits, b.changed = false, true
		b.waiting--
	}
}

// list adds a listing whose pods have all been compared.
func (b *backlog) list(at time.Time, callers []chan<- error) {
	b.open = append(b.open, open{b.listings, at, b.owing, callers})
}

// complete returns the mark for the listings that have become complete.
func (b *backlog) complete() (m stage.Mark, ok bool) {
	for len(b.open) > 0 && b.open[0].left == 0 {
		m.Current, ok = b.open[0].at, true
		m.Relisted = append(m.Relisted, b.open[0].callers...)
		b.open = slices.Delete(b.open, 0, 1)
	}
	if ok {
		for rec := range b.records() {
			m.Behind = append(m.Behind, stage.Behind{Pod: rec.named, Until: rec.until})
		}
		slices.SortStableFunc(m.Behind, func(a, b stage.Behind) int { return a.Until.Compare(b.Until) })
	}
	return m, ok
}

func (b *backlog) records() func(yield func(*record) bool) {
	return func(yield func(*record) bool) {
		for e := b.behind.Front(); e != nil; e = e.Next() {
			if !yield(e.Value.(*record)) {
				return
			}
		}
	}
}

// pending appends the pods that the newest listing does not cover.
func (b *backlog) pending(pods []*pleg.Pod) []*pleg.Pod {
	for rec := range b.records() {
		pods = append(pods, rec.named)
	}
	return pods
}

// WaitingPod is a pod that has changed and was not inspected with success since.
type WaitingPod struct {
	Name  string // namespace/name
	Since time.Time
}

// published returns a copy for other goroutines.
func (b *backlog) published() Waiting {
	w := Waiting{Pods: b.waiting}
	for rec := range b.records() {
		if rec.waits && len(w.First) < named {
			w.First = append(w.First, WaitingPod{rec.podName(), rec.since})
		}
		if len(w.First) == named {
			break
		}
	}
	return w
}
