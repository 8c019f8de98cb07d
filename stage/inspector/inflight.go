package inspector

import (
	"iter"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

func (s *flights) len() int { return len(s.placed) + len(s.abandoned) }

// each ranges over all inspections in progress, abandoned ones too.
func (s *flights) each() iter.Seq[*flight] {
	return func(yield func(*flight) bool) {
		for _, f := range s.placed {
			if !yield(f) {
				return
			}
		}
		for _, f := range s.abandoned {
			if !yield(f) {
				return
			}
		}
	}
}

// find returns the pod's inspection that takes a place, or nil.
func (s *flights) find(uid pleg.PodUID) *flight {
	if n := s.index(uid); n >= 0 {
		return s.placed[n]
	}
	return nil
}

func (s *flights) index(uid pleg.PodUID) int {
	return slices.IndexFunc(s.placed, func(f *flight) bool { return f.change.UID == uid })
}

func (s *flights) leave(uid pleg.PodUID) *flight {
	n := s.index(uid)
	f := s.placed[n]
	s.placed = slices.Delete(s.placed, n, n+1)
	return f
}

// oldest returns when the oldest began; nil if there is none.
func (s *flights) oldest() *time.Time {
	var oldest *time.Time
	for f := range s.each() {
		if oldest == nil || f.started.Before(*oldest) {
			oldest = &f.started
		}
	}
	return oldest
}

// earlier returns the earlier of two times, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
