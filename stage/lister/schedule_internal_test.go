package lister

import (
	"testing"
	"time"
)

var (
	noon = time.Unix(1_700_000_000, 0)
	up   = evidence{up: true, since: noon}
)

// require asks the schedule so long after noon.
func (s *schedule) require(t *testing.T, after time.Duration, stream evidence, begin bool, again time.Duration) {
	t.Helper()
	now := noon.Add(after)
	if got, at := s.next(now, stream, s.period); got != begin || !begin && at.Sub(noon) != again {
		t.Errorf("%v: begins: %v, asks again at %v; want %v, %v", after, got, at.Sub(noon), begin, again)
	}
}

// Each time that the process did not run while a list became due, events go first.
func TestOversleptListLetsEventsGoFirst(t *testing.T) {
	s := &schedule{period: time.Second}
	at := time.Duration(0)
	for range 3 {
		s.listEnded(noon.Add(at), up)
		s.require(t, at, up, false, at+time.Second)
		at += 10 * time.Second
		s.require(t, at, up, false, at+catchUp)
		s.requestSoon(noon.Add(at))
		s.require(t, at+catchUp-1, up, false, at+catchUp)
		at += catchUp
		s.require(t, at, up, true, 0)
		s.listEnded(noon.Add(at), up)
		s.require(t, at, up, false, at+time.Second)
		at += time.Second
		s.require(t, at, up, true, 0)
	}
}

// A stream that has ended has no events to wait for.
func TestEndedStreamEndsTheWaitForItsEvents(t *testing.T) {
	s := &schedule{period: time.Second}
	s.listEnded(noon, up)
	s.require(t, 0, up, false, time.Second)
	s.require(t, 10*time.Second, up, false, 10*time.Second+catchUp)
	ended := evidence{since: noon.Add(10 * time.Second)}
	s.require(t, 10*time.Second, ended, true, 0)
	s.listEnded(noon.Add(11*time.Second), ended)
	s.require(t, 11*time.Second, ended, false, 12*time.Second)
	s.require(t, 20*time.Second, ended, true, 0)
}
