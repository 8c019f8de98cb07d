//go:build linux

package lab

import (
	"slices"
	"sync"
	"time"
)

// Step is a step in the life of a container or a sandbox.
type Step string

// The steps of a container. A sandbox is never Created, because the runtime creates and starts it
// in one call.
const (
	Created Step = "Created"
	Started Step = "Started"
	Died    Step = "Died"
	Removed Step = "Removed"
)

// Entry is one step of one container or sandbox. The lab has made this step, and has compared it
// with the runtime's status if there is any.
type Entry struct {
	Step          Step
	PodUID        string
	PodName       string
	PodNamespace  string
	ContainerID   string
	ContainerName string // empty for a sandbox
	Attempt       uint32
	Sandbox       bool
	// IP is the address of a sandbox that has started; empty without an address.
	IP string
	// ExitCode and Reason are set if a container died.
	ExitCode int32
	Reason   string
	// Began is before the step. Ended is after the runtime reported it.
	Began, Ended time.Time
}

// History is the history of the pods of a lab. It is safe for concurrent use.
type History struct {
	mu      sync.Mutex
	entries []Entry
	last    map[string]Step // by container id
}

func newHistory() *History {
	return &History{last: make(map[string]Step)}
}

// All returns every entry in the order of Ended.
func (l *History) All() []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries)
}

// Last returns the newest step of a container or sandbox; empty if the history does not contain the
// id.
func (l *History) Last(containerID string) Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[containerID]
}

func (l *History) add(e Entry) {
	e.Ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, e)
	l.last[e.ContainerID] = e.Step
}
