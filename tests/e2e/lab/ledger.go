//go:build linux

package lab

import (
	"slices"
	"sync"
	"time"
)

// Step is what happened to a container or a sandbox.
type Step string

// The steps in the life of a container. A sandbox has no Created: the runtime
// creates and starts it in one call.
const (
	Created Step = "Created"
	Started Step = "Started"
	Died    Step = "Died"
	Removed Step = "Removed"
)

// Entry is one step of one container or sandbox. It is known from what the lab
// did, and checked against the runtime's own status where that exists.
type Entry struct {
	Step          Step
	PodUID        string
	PodName       string
	PodNamespace  string
	ContainerID   string
	ContainerName string // empty for a sandbox
	Attempt       uint32
	Sandbox       bool
	// ExitCode and Reason are set on the Died of a container.
	ExitCode int32
	Reason   string
	// Began is a moment before the step, Ended one after the runtime showed it.
	Began, Ended time.Time
}

// Ledger is the true history of a lab. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	entries []Entry
	last    map[string]Step // by container id
}

func newLedger() *Ledger {
	return &Ledger{last: make(map[string]Step)}
}

// All returns every entry in the order in which the steps were seen to end.
func (l *Ledger) All() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// Pod returns the entries of one pod, in order.
func (l *Ledger) Pod(uid string) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Entry
	for _, e := range l.entries {
		if e.PodUID == uid {
			out = append(out, e)
		}
	}
	return out
}

// Last returns the newest step of a container or sandbox; empty if the ledger
// does not know the id.
func (l *Ledger) Last(containerID string) Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[containerID]
}

func (l *Ledger) add(e Entry) {
	e.Ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	l.last[e.ContainerID] = e.Step
}
