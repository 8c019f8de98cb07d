package recording

import (
	"context"
	"math"
	"sort"
	"time"
)

// patience is how early a client may ask, in the time of the recording: without events for a
// list, and with events for a status.
const patience = 500 * time.Millisecond

// choose returns the answer to a question, or nil if there is none. It is the newest one. If
// that is used up, the client asks before the recorded client did: then it is the next one,
// unless that belongs to a later list.
func (s *Server) choose(q string) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind, ok := kinds[q]; ok {
		return s.chooseList(kind)
	}
	all := s.recording.answers[q]
	if len(all) == 0 {
		return nil
	}
	now, until := s.now(), s.limit()
	if s.follows {
		until = now + patience
	}
	given := s.given[q]
	n := max(given, sort.Search(len(all), func(i int) bool { return all[i].at > now }))
	if n == given && n < len(all) && (n == 0 || all[n].at < until) {
		n++
	}
	s.given[q] = n
	return all[n-1]
}

// The methods below need the lock.

// chooseList returns a full list. The next round begins once a client asks again for a list.
func (s *Server) chooseList(kind int) *call {
	now := s.now()
	if s.asked[kind] {
		until := now
		if !s.follows {
			until += patience
		}
		for rounds := s.recording.rounds; s.next < len(rounds) && (s.next == 0 || rounds[s.next].at <= until); {
			s.shown = rounds[s.next]
			if s.next++; !s.follows {
				break
			}
		}
		// The clock has stood still until now.
		s.zero = s.zero.Add(time.Duration(float64(s.elapsed()-now) / s.speed))
		s.asked = [2]bool{}
	}
	s.asked[kind] = true
	if list := s.shown.lists[kind]; list != nil && list.reply != nil {
		return s.recording.changed(list, kind, now)
	}
	return s.shown.lists[kind]
}

// elapsed is the time of a clock that does not stand still.
func (s *Server) elapsed() time.Duration { return time.Duration(float64(time.Since(s.zero)) * s.speed) }

// limit is the time of the next list. Without events, the clock stands still there until a
// client asks for it.
func (s *Server) limit() time.Duration {
	if s.next < len(s.recording.rounds) && !s.follows {
		return s.recording.rounds[s.next].at
	}
	return math.MaxInt64
}

// now returns the time of the recording.
func (s *Server) now() time.Duration { return min(s.elapsed(), s.limit()) }

// waitUntil waits for a time of the recording. It must not hold the lock.
func (s *Server) waitUntil(ctx context.Context, at time.Duration) error {
	for {
		s.mu.Lock()
		left := at - s.now()
		s.mu.Unlock()
		if left <= 0 {
			return nil
		}
		// It cannot be earlier, and is later if the clock stands still meanwhile.
		if err := sleep(ctx, max(time.Millisecond, time.Duration(float64(left)/s.speed))); err != nil {
			return err
		}
	}
}
