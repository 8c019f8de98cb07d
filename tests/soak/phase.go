package soak

import "sync"

// phase is the state that subscribers wait for: whether the node rests.
type phase struct {
	mu      sync.Mutex
	resting bool
	rests   int           // started so far
	changed chan struct{} // closed when it changes
}

func newPhase() *phase { return &phase{changed: make(chan struct{})} }

func (p *phase) set(resting bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resting = resting
	if resting {
		p.rests++
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

// now returns whether the node rests, the number of rests so far, and a channel that is
// closed at the next change.
func (p *phase) now() (resting bool, rests int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.resting, p.rests, p.changed
}
