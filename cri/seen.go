package cri

import (
	"maps"
	"sync"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxSeen bounds the sandboxes that are remembered until the next list.
const maxSeen = 4096

// seenSandboxes are the sandboxes that CRI events and single-pod lists have shown
// since the last list of all pods. A list in portions asks for them by id: it has
// no other way to find a new sandbox that has no container yet, and a sandbox
// that no list shows counts as gone. It is safe for concurrent use.
type seenSandboxes struct {
	mu  sync.Mutex
	ids map[pleg.ContainerID]struct{}
}

func (s *seenSandboxes) add(id pleg.ContainerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[pleg.ContainerID]struct{})
	}
	if id != "" && len(s.ids) < maxSeen {
		s.ids[id] = struct{}{}
	}
}

// drain returns the sandboxes and forgets them.
func (s *seenSandboxes) drain() map[pleg.ContainerID]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	drained := s.ids
	s.ids = nil
	return drained
}

// restore adds the sandboxes that were drained for a list that then failed.
func (s *seenSandboxes) restore(drained map[pleg.ContainerID]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if drained == nil {
		return
	}
	maps.Copy(drained, s.ids)
	s.ids = drained
}
