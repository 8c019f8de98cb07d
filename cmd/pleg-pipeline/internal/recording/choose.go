package recording

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
)

// chooseList returns the items of a full list, how the list was recorded, and
// whether the client asks for nothing after it.
func (s *Server) chooseList(k kind, _ proto.Message) (items []*item, how *step, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[k] || s.shownAt.IsZero() || time.Since(s.shownAt) > pairWithin {
		s.openRound()
	}
	s.asked[k] = true
	last = s.nextRound() == nil && s.next == len(s.recording.steps) && s.now() >= s.recording.Length
	if how = s.how[k]; last && how != nil && how.pending {
		s.lastList = cmp.Or(s.lastList, time.Now()) // it will hang
	}
	return s.shown[k], how, last
}

// noteLastList notes that a list from after the end was answered.
func (s *Server) noteLastList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastList = cmp.Or(s.lastList, time.Now())
}

// sinceFiltered returns how long ago a list of this filter was made, if that was lately.
// The world has its answer, which counts for a call that is nearer to it than to the next.
func (s *Server) sinceFiltered(key string, now time.Duration) time.Duration {
	for _, before := range slices.Backward(s.recording.steps[:s.next]) {
		if before.key == key {
			return now - before.at
		}
		if before.at < now-s.scaled(slack) {
			break
		}
	}
	return s.scaled(slack)
}

// chooseFiltered returns the list of this filter that was made at about this time,
// or the items of the world that match.
func (s *Server) chooseFiltered(k kind, filter proto.Message) (items []*item, how *step, last bool) {
	key := filterKey(k, filter)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.position()
	s.advance(now)
	within := min(s.scaled(slack), s.sinceFiltered(key, now))
	for _, next := range s.recording.steps[s.next:] {
		if next.at > now+within {
			break
		}
		if next.key == key {
			return next.items, next, false
		}
	}
	match := newMatcher(filter)
	for _, it := range s.world.view[k] {
		if match.matches(it) {
			items = append(items, it)
		}
	}
	return items, s.world.filtered[key], false
}
