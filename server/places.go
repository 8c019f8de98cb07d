package server

import (
	"slices"
	"sync"
)

// places are a limited number of something that clients hold. If all are taken, a process
// gets one of the process that has most: otherwise one could shut all others out.
type places struct {
	max int

	mu   sync.Mutex
	held []*place // the last is the newest
}

// place is what one client holds.
type place struct {
	holder  any
	process int32  // 0 if it is not known: nobody gives up a place for it, nor it for others
	evict   func() // ends what is held; it may take a while
}

func newPlaces(n int) *places { return &places{max: n} }

// acquire returns false if there is no place. The holder calls release, also if it was evicted.
func (p *places) acquire(holder any, process int32, evict func()) bool {
	p.mu.Lock()
	var victim *place
	if len(p.held) >= p.max {
		if victim = p.newestOfMost(process); victim == nil {
			p.mu.Unlock()
			return false
		}
		p.drop(victim.holder)
	}
	p.held = append(p.held, &place{holder, process, evict})
	p.mu.Unlock()
	if victim != nil {
		victim.evict()
	}
	return true
}

// release may be called several times.
func (p *places) release(holder any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(holder)
}

// newestOfMost returns the newest place of the process that has most; nil if the one that
// asks would then have more than that one.
func (p *places) newestOfMost(process int32) *place {
	if process == 0 {
		return nil
	}
	count := make(map[int32]int)
	var newest *place
	for _, x := range p.held {
		if count[x.process]++; x.process != 0 && (newest == nil || count[x.process] >= count[newest.process]) {
			newest = x
		}
	}
	if newest == nil || count[newest.process] <= count[process]+1 {
		return nil
	}
	return newest
}

func (p *places) drop(holder any) {
	if i := slices.IndexFunc(p.held, func(x *place) bool { return x.holder == holder }); i >= 0 {
		p.held = slices.Delete(p.held, i, i+1)
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
