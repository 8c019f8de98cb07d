package inspector

import (
	"sync/atomic"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// inFlight knows the inspections under way and publishes when the oldest began.
type inFlight struct {
	started map[pleg.PodUID]time.Time
	oldest  atomic.Pointer[time.Time]
}

func (f *inFlight) len() int { return len(f.started) }

func (f *inFlight) begin(uid pleg.PodUID) {
	now := time.Now()
	f.started[uid] = now
	if len(f.started) == 1 {
		f.oldest.Store(&now)
	}
}

func (f *inFlight) end(uid pleg.PodUID) {
	ended := f.started[uid]
	delete(f.started, uid)
	if oldest := f.oldest.Load(); ended.After(*oldest) {
		return
	}
	var next *time.Time
	for _, at := range f.started {
		if next == nil || at.Before(*next) {
			next = &at
		}
	}
	f.oldest.Store(next)
}

// since returns the number of inspections that began after a time, and when the
// first of them did.
func (f *inFlight) since(after time.Time) (n int, oldest time.Time) {
	for _, at := range f.started {
		if !at.After(after) {
			continue
		}
		if n++; n == 1 || at.Before(oldest) {
			oldest = at
		}
	}
	return n, oldest
}

// age returns for how long the oldest inspection has been running, in seconds;
// 0 if there is none. It is safe for concurrent use.
func (f *inFlight) age() float64 {
	oldest := f.oldest.Load()
	if oldest == nil {
		return 0
	}
	return time.Since(*oldest).Seconds()
}
