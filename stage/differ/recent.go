package differ

import "time"

// recent is a set whose members expire. It is bounded: if it is full, the oldest
// member makes room for a new one.
type recent[K comparable] struct {
	keep  time.Duration
	bound int
	since map[K]time.Time
	order []K
}

func newRecent[K comparable](keep time.Duration, bound int) *recent[K] {
	return &recent[K]{keep: keep, bound: bound, since: make(map[K]time.Time)}
}

// add adds a member unless the set has it.
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

// empty reports whether the set has no members, expired ones included.
func (r *recent[K]) empty() bool { return len(r.since) == 0 }

// remove removes a member and reports whether the set had it. Its place in the order
// stays without meaning.
func (r *recent[K]) remove(k K) bool {
	_, ok := r.since[k]
	delete(r.since, k)
	return ok
}

// expire removes the members that are too old and calls expired, which may be
// nil, with each.
func (r *recent[K]) expire(now time.Time, expired func(K)) {
	for len(r.order) > 0 {
		k := r.order[0]
		at, ok := r.since[k]
		if ok && now.Sub(at) <= r.keep {
			return
		}
		r.order = r.order[1:]
		if ok {
			delete(r.since, k)
			if expired != nil {
				expired(k)
			}
		}
	}
}
