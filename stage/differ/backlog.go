package differ

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// backlog has the pods that are behind the newest answers, and the listings that wait for them.
//
// A listing is complete once each pod that it found changed has been inspected, well or not,
// or hangs. Listings are numbered: a pod owes them all from a number on, until its change has
// ended.
type backlog struct {
	behind map[*record]struct{}
	// owing is how many pods owe the listings from a number on.
	owing map[uint64]int
	// listings is the number of the newest listing, open are those that are not complete.
	listings uint64
	open     []open
}

// open is a listing that is not complete.
type open struct {
	number  uint64
	at      time.Time
	callers []chan<- error
}

// all is the number of a listing that never comes.
const all = math.MaxUint64

// fallBehind notes that the newest listing does not cover a pod.
func (b *backlog) fallBehind(rec *record) { b.behind[rec] = struct{}{} }

// owe has the next listing, and those after it, wait for a pod. A listing that is being compared
// is the next one.
func (b *backlog) owe(rec *record) {
	if rec.owes == 0 {
		b.setOwes(rec, b.listings+1)
	}
}

func (b *backlog) setOwes(rec *record, number uint64) {
	if b.owing[rec.owes]--; b.owing[rec.owes] <= 0 {
		delete(b.owing, rec.owes)
	}
	if rec.owes = number; number > 0 {
		b.owing[number]++
	}
}

// ended notes that the change of a pod has ended, well or not, as far as the listings up to a
// number wait for it.
func (b *backlog) ended(rec *record, upTo uint64) {
	switch {
	case rec.owes == 0 || rec.owes > upTo:
	case upTo == all:
		b.setOwes(rec, 0)
	default:
		b.setOwes(rec, upTo+1)
	}
}

// settle notes that everything known of a pod is delivered.
func (b *backlog) settle(rec *record) {
	b.ended(rec, all)
	rec.until = rec.asked.At
	delete(b.behind, rec)
}

// list adds a listing whose pods have all been compared.
func (b *backlog) list(at time.Time, callers []chan<- error) {
	b.listings++
	b.open = append(b.open, open{b.listings, at, callers})
}

// complete returns the mark for the listings that have become complete, if there are any.
func (b *backlog) complete() (m stage.Mark) {
	var owed uint64 = all
	for number := range b.owing {
		owed = min(owed, number)
	}
	for len(b.open) > 0 && b.open[0].number < owed {
		m.Current = b.open[0].at
		m.Relisted = append(m.Relisted, b.open[0].callers...)
		b.open = slices.Delete(b.open, 0, 1)
	}
	if m.Current.IsZero() {
		return m
	}
	for rec := range b.behind {
		m.Behind = append(m.Behind, stage.Behind{Pod: rec.named, Until: rec.until})
	}
	slices.SortFunc(m.Behind, func(a, b stage.Behind) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return m
}

// pending appends the pods that the newest listing does not cover.
func (b *backlog) pending(pods []*pleg.Pod) []*pleg.Pod {
	for rec := range b.behind {
		pods = append(pods, rec.named)
	}
	return pods
}
