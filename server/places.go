package server

import (
	"slices"
	"sync"
)

// places are a limited number of something that clients hold. If all are taken, a client
// gets one of the client that has most: otherwise one could shut all others out.
type places struct {
	max int

	mu   sync.Mutex
	held []*place // the last is the newest
}

// place is what one client holds.
type place struct {
	client   any           // nil if it is not known: nobody gives up a place for it, nor it for others
	evict    func()        // ends what is held, perhaps a moment later
	evicted  bool          // evict has been or will be called, for another client
	released chan struct{} // closed by release
}

func newPlace(client any, evict func()) *place {
	return &place{client: client, evict: evict, released: make(chan struct{})}
}

func newPlaces(n int) *places { return &places{max: n} }

// acquire returns false if there is no place. If it evicts another one for this, it
// returns that: there is one too many until it is released. The holder of x calls release.
func (p *places) acquire(x *place) (victim *place, ok bool) {
	if victim, ok = p.add(x); victim != nil {
		victim.evict()
	}
	return victim, ok
}

func (p *places) add(x *place) (victim *place, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.held) >= p.max {
		if victim = p.newestOfMost(x.client); victim == nil {
			return nil, false
		}
		victim.evicted = true
	}
	p.held = append(p.held, x)
	return victim, true
}

// newestOfMost returns the newest place of the client that has most; nil if the one that
// asks would then have more than that one. Evicted ones do not count.
func (p *places) newestOfMost(client any) *place {
	if client == nil {
		return nil
	}
	count := make(map[any]int)
	var newest *place
	for _, x := range p.held {
		if x.evicted || x.client == nil {
			continue
		}
		if count[x.client]++; newest == nil || count[x.client] >= count[newest.client] {
			newest = x
		}
	}
	if newest == nil || count[newest.client] <= count[client]+1 {
		return nil
	}
	return newest
}

// release may be called several times.
func (p *places) release(x *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.held, x); i >= 0 {
		p.held = slices.Delete(p.held, i, i+1)
		close(x.released)
	}
}

// evictAll ends everything that is held.
func (p *places) evictAll() {
	p.mu.Lock()
	held := slices.Clone(p.held)
	p.mu.Unlock()
	for _, x := range held {
		x.evict()
	}
}
