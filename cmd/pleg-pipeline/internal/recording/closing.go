package recording

import (
	"context"
	"time"
)

// closing is what tells that all has been played. It needs the server's lock.
type closing struct {
	unheard  int       // calls under way whose answer is new
	lastNews time.Time // when the last of them was answered
	lastList time.Time // when a list was answered that was asked for after the end
}

// hear notes that an answer is given, and reports whether it is so for the first
// time.
func (s *Server) hear(o *outcome) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard[o] {
		return false
	}
	s.heard[o] = true
	s.unheard++
	return true
}

func (s *Server) done(news bool) {
	if !news {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unheard--
	s.lastNews = time.Now()
}

// isLast reports whether the lists that are shown are of the end. It needs the
// lock.
func (s *Server) isLast() bool {
	return s.nextRound() == nil && s.next == len(s.recording.steps) && s.now() >= s.recording.Length
}

// closed notes that a list of the end was answered, or that it hangs as recorded.
func (s *Server) closed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastList.IsZero() {
		s.lastList = time.Now()
	}
}

// awaitEnd closes ended when all has been played, unless ctx ends before.
func (s *Server) awaitEnd(ctx context.Context) {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if s.isOver() {
				close(s.ended)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// isOver reports whether a list was made after the end, and nothing new has been
// asked for since.
func (s *Server) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.lastList.IsZero() && time.Since(s.lastList) >= quiet && s.unheard == 0 && time.Since(s.lastNews) >= quiet
}
