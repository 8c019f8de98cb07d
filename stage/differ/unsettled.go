package differ

import (
	"container/list"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

const (
	// startPatience is how long one inspection may delay the first mark. A pod that
	// hangs while the pipeline starts must not keep every subscriber waiting.
	startPatience = 10 * time.Second
	// named is the number of waiting pods that are published.
	named = 3
)

// unsettled has the pods of which not everything that was observed is delivered, or that
// the newest list does not cover, in the order in which they became so. It is the only
// bookkeeping of that: health, marks, callers of Relist and the cache read it. It has no
// clock.
type unsettled struct {
	order list.List // of *lag
	// lists is the number of lists of all pods. newest is when the newest one began, before
	// when the one before it did; zero without one.
	lists          int
	newest, before time.Time
	// fresh is the number of pods whose changes the mark of the newest list waits for.
	fresh int
	// marked is set once the subscribers know of the newest list, started once the first
	// mark was sent.
	marked, started bool
	// awaited are the lists that callers wait for, until the changes of all pods have ended.
	awaited []awaited
	// count and first are copies for other goroutines: the number of pods that wait, and the
	// first few of them.
	count atomic.Int64
	first atomic.Pointer[[]WaitingPod]
}

// lag is a pod that is unsettled.
type lag struct {
	rec *record
	// waits is false if all that was observed is delivered, but the newest list may show
	// more.
	waits bool
	// since is when the pod became unsettled, began when an inspector accepted it.
	since, began time.Time
	// until is when the last list began of which everything is delivered; zero if there is
	// none. tried is the number of the last one whose changes have ended, well or not.
	until time.Time
	tried int
}

// awaited is a list whose callers wait for pods that it found unsettled.
type awaited struct {
	at      time.Time
	number  int
	left    int
	callers []chan<- error
}

// WaitingPod is a pod that has changed and was not inspected with success since.
type WaitingPod struct {
	Name  string // namespace/name
	Since time.Time
}

// changed notes that a pod has changed.
func (u *unsettled) changed(rec *record, now time.Time) {
	l := u.add(rec)
	u.order.MoveToBack(rec.lag)
	l.waits, l.since, l.began = true, now, time.Time{}
	if u.count.Add(1) <= named {
		u.publish()
	}
}

// add notes that the newest list does not cover a pod.
func (u *unsettled) add(rec *record) *lag {
	if rec.lag == nil {
		rec.lag = u.order.PushBack(&lag{rec: rec, until: u.newest, tried: u.lists})
	}
	return lagOf(rec)
}

func lagOf(rec *record) *lag { return rec.lag.Value.(*lag) }

// accepted notes that an inspector has begun with a pod.
func (u *unsettled) accepted(rec *record, now time.Time) {
	if rec.lag != nil {
		lagOf(rec).began = now
	}
}

// ended notes that the change of a pod as observed at a time has ended, well or not.
func (u *unsettled) ended(rec *record, at time.Time) {
	switch {
	case rec.lag == nil:
	case !rec.state.inFlight() || !at.Before(u.newest):
		u.try(lagOf(rec), u.lists)
	default: // what was observed later is on its way
		for _, w := range u.awaited {
			if !at.Before(w.at) {
				u.try(lagOf(rec), w.number)
			}
		}
	}
}

// cover notes that the newest list covers a pod.
func (u *unsettled) cover(rec *record) { u.delivered(rec, u.newest) }

// delivered notes that all that was observed of a pod is delivered, which shows everything
// up to a time.
func (u *unsettled) delivered(rec *record, asOf time.Time) {
	if rec.lag == nil {
		return
	}
	l := lagOf(rec)
	if l.waits {
		l.waits = false
		u.count.Add(-1)
		if first := *u.first.Load(); !l.since.After(first[len(first)-1].Since) {
			defer u.publish()
		}
	}
	if asOf.Before(u.newest) {
		return
	}
	u.try(l, u.lists)
	u.order.Remove(rec.lag)
	rec.lag = nil
}

func (u *unsettled) try(l *lag, to int) {
	from := l.tried
	if u.isFresh(l) && to == u.lists {
		u.fresh--
	}
	l.tried = max(from, to)
	for n := range u.awaited {
		if w := &u.awaited[n]; from < w.number && w.number <= to {
			w.left--
		}
	}
}

// isFresh reports whether a pod changed with the newest list and none of its inspections
// has ended since. The mark waits for such pods, but not for those that fail or hang.
func (u *unsettled) isFresh(l *lag) bool {
	return l.tried < u.lists && !l.until.Before(u.before)
}

// addList adds a list whose pods have all been compared. It appends the pods that the list
// does not cover to pending.
func (u *unsettled) addList(at time.Time, callers []chan<- error, pending []*pleg.Pod) []*pleg.Pod {
	u.lists++
	u.before, u.newest, u.marked, u.fresh = u.newest, at, false, 0
	w := awaited{at: at, number: u.lists, callers: callers}
	for e := u.order.Front(); e != nil; e = e.Next() {
		l := e.Value.(*lag)
		pending = append(pending, l.rec.nameOf(l.rec.current.pod))
		if !l.rec.state.inFlight() {
			l.tried = u.lists
			continue
		}
		w.left++
		if u.isFresh(l) {
			u.fresh++
		}
	}
	if len(callers) > 0 {
		u.awaited = append(u.awaited, w)
	}
	return pending
}

// reached returns the callers whose lists have no change in flight any more.
func (u *unsettled) reached() (callers []chan<- error) {
	u.awaited = slices.DeleteFunc(u.awaited, func(w awaited) bool {
		if w.left == 0 {
			callers = append(callers, w.callers...)
		}
		return w.left == 0
	})
	return callers
}

// hasStarted reports whether the pods of the first list have been inspected, well or not,
// except those whose inspection takes too long.
func (u *unsettled) hasStarted(now time.Time) bool {
	if u.started || u.lists == 0 {
		return u.started
	}
	for e := u.order.Front(); e != nil; e = e.Next() {
		l := e.Value.(*lag)
		if l.tried == 0 && (l.began.IsZero() || now.Sub(l.began) < startPatience) {
			return false
		}
	}
	u.started = true
	return true
}

// behind returns the pods that the newest list does not cover, those that lag most first.
func (u *unsettled) behind() []stage.Behind {
	var behind []stage.Behind
	for e := u.order.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*lag); l.until.Before(u.newest) {
			behind = append(behind, stage.Behind{Pod: l.rec.nameOf(l.rec.current.pod), Until: l.until})
		}
	}
	slices.SortFunc(behind, func(a, b stage.Behind) int { return a.Until.Compare(b.Until) })
	return behind
}

func (u *unsettled) publish() {
	first := make([]WaitingPod, 0, named)
	for e := u.order.Front(); e != nil && len(first) < named; e = e.Next() {
		if l := e.Value.(*lag); l.waits {
			pod := l.rec.nameOf(nil)
			first = append(first, WaitingPod{Name: pod.Namespace + "/" + pod.Name, Since: l.since})
		}
	}
	u.first.Store(&first)
}

// Waiting returns the number of pods that have changed and were not inspected with
// success since, and up to three of them that changed first. It is safe for concurrent
// use. The slice must not be modified.
func (d *Differ) Waiting() (pods int, first []WaitingPod) {
	if published := d.unsettled.first.Load(); published != nil {
		first = *published
	}
	return int(d.unsettled.count.Load()), first
}
