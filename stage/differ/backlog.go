package differ

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// open is a listing that is not complete. It is complete once the inspection of each changed pod
// has ended, with or without success, or hangs.
type open struct {
	stage.Asked
	callers []chan<- error
}

// complete returns the mark for the listings that have become complete, if there are any.
func (m *machine) complete() (mark stage.Mark) {
	var done stage.Asked
	for len(m.open) > 0 && !m.owes(m.open[0]) {
		done = m.open[0].Asked
		mark.Relisted = append(mark.Relisted, m.open[0].callers...)
		m.open = slices.Delete(m.open, 0, 1)
	}
	if done.Began == 0 {
		return mark
	}
	mark.Current = done.At
	for _, rec := range m.records {
		if rec.behind(done.Began) {
			mark.Behind = append(mark.Behind, stage.Behind{Pod: rec.named, Until: rec.until.At})
		}
	}
	slices.SortFunc(mark.Behind, func(a, b stage.Behind) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return mark
}

// owes reports whether a listing waits for a pod.
func (m *machine) owes(l open) bool {
	for _, rec := range m.records {
		if rec.owes > 0 && rec.owes <= l.Began {
			return true
		}
	}
	return false
}

// behind returns the pods that a listing does not cover.
func (m *machine) behind(began uint64) (pods []*pleg.Pod) {
	for _, rec := range m.records {
		if rec.behind(began) {
			pods = append(pods, rec.named)
		}
	}
	return pods
}
