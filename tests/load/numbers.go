package load

import "github.com/pleg-pipeline/pleg-pipeline/pleg"

// Numbers checks the numbers of the events of one reader of all events, network events
// included: no event may be missing unless the reader was told, and none may come twice.
// It keeps no events, so that there may be many readers. One goroutine at a time may use it.
type Numbers struct {
	Events int
	// Told counts the Gaps.
	Told int
	// Lost counts the events that are missing without a Gap, Repeated the events that came twice.
	Lost, Repeated uint64
	// Position is from where to resume.
	Position pleg.Position
	// Served: the reader got something.
	Served bool

	// last is the number up to which the reader has everything, if known.
	last  uint64
	known bool
}

// Add checks an event.
func (s *Numbers) Add(ev pleg.Event) {
	s.Served = true
	if at, ok := ev.Position(); ok {
		s.Position = at
	}
	mark := ev.Type == pleg.Synced || ev.Type == pleg.Bookmark
	switch {
	case ev.Type == pleg.Gap:
		s.Told++
		s.known, s.last = false, 0
		return
	case ev.Replayed && (!s.known || ev.Seq <= s.last):
		return // later replayed events count: they are of pods that the daemon found when it started
	case !mark:
		s.Events++
	}
	if s.known {
		switch next := s.last + 1; {
		case mark && ev.Seq >= next: // a mark has the number of the event before it
			s.Lost += ev.Seq - s.last
		case !mark && ev.Seq > next:
			s.Lost += ev.Seq - next
		case !mark && ev.Seq < next:
			s.Repeated++
		}
	}
	s.last, s.known = max(s.last, ev.Seq), true
}
