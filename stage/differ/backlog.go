package differ

import (
	"cmp"
	"slices"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
	"github.com/pleg-pipeline/pleg-pipeline/stage"
)

// backlog contains the listings that are not complete. A listing is complete once the inspection of
// each changed pod has ended, with or without success, or hangs.
type backlog struct{ open []open }

type open struct {
	stage.Asked
	callers []chan<- error
}

// complete returns the mark for the listings that have become complete, if there are any.
func (b *backlog) complete(records map[pleg.PodUID]*record) (mark stage.Mark) {
	var done stage.Asked
	for len(b.open) > 0 && !owed(records, b.open[0].Began) {
		done = b.open[0].Asked
		mark.Relisted = append(mark.Relisted, b.open[0].callers...)
		b.open = slices.Delete(b.open, 0, 1)
	}
	if done.Began == 0 {
		return mark
	}
	mark.Current = done.At
	for _, rec := range records {
		if rec.behind(done.Began) {
			mark.Behind = append(mark.Behind, stage.Behind{Pod: rec.named, Until: rec.until.At})
		}
	}
	slices.SortFunc(mark.Behind, func(a, b stage.Behind) int {
		return cmp.Or(a.Until.Compare(b.Until), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	return mark
}

// owed reports whether a listing that began then waits for a pod.
func owed(records map[pleg.PodUID]*record, began uint64) bool {
	for _, rec := range records {
		if rec.owesTo(began) {
			return true
		}
	}
	return false
}

// behind returns the pods that a listing does not cover.
func (b *backlog) behind(records map[pleg.PodUID]*record, began uint64) (pods []*pleg.Pod) {
	for _, rec := range records {
		if rec.behind(began) {
			pods = append(pods, rec.named)
		}
	}
	return pods
}
