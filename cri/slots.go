package cri

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// hungAfter is the age at which a status call gives its slot up in any case.
	// containerd answers within 20 ms with 32 calls in flight, so a call of one second does
	// not wait for the runtime's capacity.
	hungAfter = time.Second
	// recentCalls is the number of successful calls that tell how long one may take.
	recentCalls = 32
	// suspicion is how many times as long as the longest of them a call takes before it is
	// suspicious; never less than leastPatience, for the scheduler's sake.
	suspicion     = 3
	leastPatience = 20 * time.Millisecond
)

// slots bound the status calls in flight. A call gives its slot up when it is as old as
// hungAfter, or suspicious and overtaken: a call that began later has succeeded. It is
// safe for concurrent use.
type slots struct {
	taken chan struct{} // one value for each slot

	mu   sync.Mutex
	held map[*slot]struct{}
	// recent has the times of the last successful calls, as a ring.
	recent []time.Duration
	next   int
	// newest is when the youngest successful call began.
	newest time.Time
}

// slot is that of one call.
type slot struct {
	began time.Time
	timer *time.Timer
}

func newSlots(n int) *slots {
	return &slots{taken: make(chan struct{}, n), held: make(map[*slot]struct{})}
}

// take waits for a slot. The caller must give it back by done.
func (s *slots) take(ctx context.Context) (*slot, error) {
	select {
	case s.taken <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for one of %d status calls: %w", cap(s.taken), context.Cause(ctx))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := &slot{began: time.Now()}
	s.held[x] = struct{}{}
	x.timer = time.AfterFunc(s.patience(), func() { s.review(x) })
	return x, nil
}

// done notes that a call has returned.
func (s *slots) done(x *slot, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.held[x]; ok {
		s.free(x)
	}
	if err != nil {
		return
	}
	now := time.Now()
	if took := now.Sub(x.began); len(s.recent) < recentCalls {
		s.recent = append(s.recent, took)
	} else {
		s.recent[s.next] = took
		s.next = (s.next + 1) % recentCalls
	}
	if x.began.After(s.newest) {
		s.newest = x.began
	}
	s.freeHung(now)
}

// review is called when a call becomes suspicious, and once more at hungAfter.
func (s *slots) review(x *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.freeHung(now)
	if _, ok := s.held[x]; ok {
		x.timer.Reset(hungAfter - now.Sub(x.began))
	}
}

// freeHung frees the slots of hung calls. The lock is held.
func (s *slots) freeHung(now time.Time) {
	patience := s.patience()
	for x := range s.held {
		if age := now.Sub(x.began); age >= hungAfter || age >= patience && x.began.Before(s.newest) {
			s.free(x)
		}
	}
}

func (s *slots) free(x *slot) {
	delete(s.held, x)
	x.timer.Stop()
	<-s.taken
}

func (s *slots) patience() time.Duration {
	if len(s.recent) == 0 {
		return hungAfter
	}
	return min(max(suspicion*slices.Max(s.recent), leastPatience), hungAfter)
}
