package lister

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// newOversleeper returns the schedule of a lister with a stream that is up, right after
// a list.
func newOversleeper(t *testing.T) *schedule {
	t.Helper()
	l, err := New(Options{RelistPeriod: time.Second, RelistPeriodWithEvents: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := l.newSchedule()
	t.Cleanup(func() { s.timer.Stop() })
	l.trust.opened()
	time.Sleep(provenAfter)
	l.listing = l.trust.now()
	s.listEnded()
	return s
}

// requireFires requires that the timer fires after the given time.
func (s *schedule) requireFires(t *testing.T, after time.Duration) {
	t.Helper()
	began := time.Now()
	<-s.timer.C
	if got := time.Since(began); got != after {
		t.Errorf("the timer fired after %v, want %v", got, after)
	}
}

// Each time that the process did not run while a list became due, events go first.
func TestOversleptListLetsEventsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOversleeper(t)
		for stop := range 3 {
			time.Sleep(10 * time.Second)
			if s.timerFired() {
				t.Errorf("stop %d: the list begins before the events", stop)
			}
			s.requestSoon()
			s.requireFires(t, catchUp)
			if !s.timerFired() {
				t.Errorf("stop %d: the list waits for the events again", stop)
			}
			s.listEnded()
			s.requireFires(t, time.Second)
			if !s.timerFired() {
				t.Errorf("stop %d: a list on time waits", stop)
			}
			s.listEnded()
		}
	})
}

// A stream that has ended has no events to wait for.
func TestEndedStreamEndsTheWaitForItsEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newOversleeper(t)
		time.Sleep(10 * time.Second)
		s.timerFired()
		s.lister.trust.ended()
		s.trustChanged()
		s.requireFires(t, 0)
		if !s.timerFired() {
			t.Error("the list waits for events of a stream that has ended")
		}
	})
}
