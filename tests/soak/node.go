package soak

import (
	"context"
	"sync"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/tests/kit"
)

// Node is a container runtime whose pods change and whose true state is known.
type Node interface {
	// Name is the kind of runtime.
	Name() string
	// Endpoint is the address of its CRI socket.
	Endpoint() string
	// Churn changes pods, and breaks the runtime now and then, until ctx ends. It
	// returns nil once no change is under way and the runtime works. It reports each
	// action by name when it is done; the name of a fault begins with "fault: ".
	Churn(ctx context.Context, report func(action string)) error
	// Truth returns the state of all pods. It is called while they rest.
	Truth(ctx context.Context) (Truth, error)
}

// What a node knows about its pods.
type (
	// Truth is the state of all pods of a node.
	Truth = kit.Truth
	// Pod is the state of one pod.
	Pod = kit.Pod
	// Container is the state of a container or a sandbox.
	Container = kit.Container
)

// settleTimeout is how long agents and subscribers may take to know the truth.
const settleTimeout = 45 * time.Second

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
