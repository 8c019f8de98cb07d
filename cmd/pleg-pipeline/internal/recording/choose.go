package recording

import (
	"sort"
	"time"

	"google.golang.org/protobuf/proto"
)

// chooseList returns the items of a full list, and how the list was recorded.
func (s *Server) chooseList(k kind) (items []*item, how *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.asked[k] || !s.begun {
		s.openRound()
	}
	s.asked[k] = true
	if !s.over && s.nextRound() == nil && s.next == len(s.recording.steps) && s.now() >= s.recording.Length {
		s.over, s.lastNew = true, time.Now()
	}
	return s.shown[k], s.how[k]
}

// The methods below need the lock.

// openRound begins a round: the next one of the recording if it is due or the
// first, or else the world as it is.
func (s *Server) openRound() {
	at := s.now()
	switch r := s.nextRound(); {
	case r != nil && !s.begun:
		at = r.at
	case r != nil && !s.byEvents:
		at = min(at, r.at)
	}
	s.advance(at)
	for k := range kinds {
		s.shown[k] = s.world.items(k)
	}
	s.how, s.begun, s.asked = s.world.last, true, [kinds]bool{}
}

// position is the time up to which answers may be given: not after a list that has
// not been asked for.
func (s *Server) position() time.Duration {
	if r := s.nextRound(); r != nil && !s.byEvents {
		return min(s.now(), r.at-1)
	}
	return s.now()
}

// nextRound returns the next round, or nil.
func (s *Server) nextRound() *round {
	if len(s.rounds) == 0 {
		return nil
	}
	return &s.rounds[0]
}

// advance moves the world to a time.
func (s *Server) advance(to time.Duration) {
	for s.next < len(s.recording.steps) && s.recording.steps[s.next].at <= to {
		s.world.apply(s.recording.steps[s.next])
		s.next++
	}
	for len(s.rounds) > 0 && s.rounds[0].at <= to {
		s.rounds = s.rounds[1:]
	}
}

// chooseFiltered returns a list with a filter, and how the last one with this filter was
// recorded. That of a pod has what there is of the pod.
func (s *Server) chooseFiltered(k kind, request proto.Message) (items []*item, how *step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.position()
	s.advance(now)
	answers := s.recording.answers[questionOf(k, request)]
	if next := firstAt(answers, now+1); next > 0 {
		how = answers[next-1]
		items = how.items
	}
	if pod := podOf(request); pod != "" {
		items = s.world.pod(k, pod)
	}
	return items, how
}

// chooseStatus returns the last recorded answer, or nil if there is none. An answer with a
// state from before that in the last list does not count: then it is the next one that does.
func (s *Server) chooseStatus(asked question) *step {
	answers := s.recording.answers[asked]
	it, _ := s.world.find(asked.kind, asked.text)
	fits := func(a *step) bool { return it == nil || a.answer == nil || a.state >= it.state }
	next := firstAt(answers, s.position()+1)
	if next > 0 && fits(answers[next-1]) {
		return answers[next-1]
	}
	for _, a := range answers[next:] {
		if fits(a) {
			return a
		}
	}
	return nil
}

// firstAt returns the index of the first answer from a time on.
func firstAt(answers []*step, at time.Duration) int {
	return sort.Search(len(answers), func(i int) bool { return answers[i].at >= at })
}
