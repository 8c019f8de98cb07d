package verdict

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

const (
	// maxRecent is the number of inspections whose median counts, recentFor how long each of them
	// counts.
	maxRecent = 8
	recentFor = time.Minute
	// minRecent is the number of inspections that a median needs: one slow pod is no slow runtime.
	minRecent = 3
)

// Recent are the last inspections that ended by themselves, one of each pod. The zero value is
// ready to use, also concurrently.
type Recent struct {
	mu   sync.Mutex
	last []inspection // the newest last
}

type inspection struct {
	uid  pleg.PodUID
	took time.Duration
	at   time.Time
}

// Ended notes that the inspection of a pod has ended by itself.
func (r *Recent) Ended(uid pleg.PodUID, took time.Duration, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = slices.DeleteFunc(r.last, func(i inspection) bool { return i.uid == uid })
	r.last = append(r.last, inspection{uid, took, at})
	r.last = slices.Delete(r.last, 0, max(0, len(r.last)-maxRecent))
}

// Took returns the median of their durations; 0 if not several ended in the last minute.
// Inspections that ended before since are forgotten.
func (r *Recent) Took(now, since time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = slices.DeleteFunc(r.last, func(i inspection) bool { return now.Sub(i.at) >= recentFor || i.at.Before(since) })
	if len(r.last) < minRecent {
		return 0
	}
	byTook := slices.SortedFunc(slices.Values(r.last), func(a, b inspection) int { return cmp.Compare(a.took, b.took) })
	return byTook[len(byTook)/2].took
}
