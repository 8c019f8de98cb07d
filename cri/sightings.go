package cri

import (
	"maps"
	"sync"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// maxSightings bounds the sandboxes that are remembered until the next list.
const maxSightings = 4096

// sightings are the sandboxes that events and lists of one pod have shown since
// the last list of all. One that is made in portions asks for them by their ids:
// it has no other way to learn of a new sandbox without a container, and what it
// does not show is taken for gone. It is safe for concurrent use.
type sightings struct {
	mu  sync.Mutex
	ids map[pleg.ContainerID]struct{}
}

func (s *sightings) add(id pleg.ContainerID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[pleg.ContainerID]struct{})
	}
	if id != "" && len(s.ids) < maxSightings {
		s.ids[id] = struct{}{}
	}
}

// take returns the sightings so far and forgets them.
func (s *sightings) take() map[pleg.ContainerID]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.ids
	s.ids = nil
	return taken
}

// putBack adds what was taken for a list that then failed.
func (s *sightings) putBack(taken map[pleg.ContainerID]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken == nil {
		return
	}
	maps.Copy(taken, s.ids)
	s.ids = taken
}
