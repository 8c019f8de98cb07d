package differ

import "time"

// recent is a set whose members are forgotten after a while. It is bounded: when
// too much comes at once, the oldest are forgotten earlier.
type recent[K comparable] struct {
	keep  time.Duration
	bound int
	since map[K]time.Time
	order []K
}

func newRecent[K comparable](keep time.Duration, bound int) *recent[K] {
	return &recent[K]{keep: keep, bound: bound, since: make(map[K]time.Time)}
}

// add puts a member into the set, unless it is there already.
func (r *recent[K]) add(k K, now time.Time) {
	r.expire(now, nil)
	if _, ok := r.since[k]; ok {
		return
	}
	if len(r.order) == r.bound {
		delete(r.since, r.order[0])
		r.order = r.order[1:]
	}
	r.since[k] = now
	r.order = append(r.order, k)
}

func (r *recent[K]) has(k K, now time.Time) bool {
	if len(r.since) == 0 {
		return false
	}
	at, ok := r.since[k]
	return ok && now.Sub(at) <= r.keep
}

// remove takes a member out of the set. Its place in the order stays, and means
// nothing.
func (r *recent[K]) remove(k K) { delete(r.since, k) }

// expire forgets the members that are too old and tells each.
func (r *recent[K]) expire(now time.Time, forgotten func(K)) {
	for len(r.order) > 0 {
		k := r.order[0]
		at, ok := r.since[k]
		if ok && now.Sub(at) <= r.keep {
			return
		}
		r.order = r.order[1:]
		if ok {
			delete(r.since, k)
			if forgotten != nil {
				forgotten(k)
			}
		}
	}
}
