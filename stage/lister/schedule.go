package lister

import "time"

// maxRequestPause bounds the time between two lists on request. RelistPeriod may be
// much longer, and then a request should not wait for so long; one list a second is
// what the kubelet does all the time.
const maxRequestPause = time.Second

// schedule says when the next list begins. The loop owns it.
type schedule struct {
	lister *Lister
	timer  *time.Timer
	// due is when the next list is to begin, ended is when the last one ended.
	due, ended time.Time
	// soon is the latest start that the requests allow; zero without one.
	soon time.Time
	// requested is whether the next list serves a request of a list at once. served is
	// when the last such list ended: hints in a row must not cause lists in a row.
	requested bool
	served    time.Time
	overslept bool
}

// newSchedule returns a schedule whose first list is due at once.
func (l *Lister) newSchedule() *schedule {
	now := time.Now()
	return &schedule{lister: l, timer: time.NewTimer(0), due: now, ended: now.Add(-l.opts.RelistPeriod)}
}

// timerFired reports whether the list begins now: events that wait go first.
func (s *schedule) timerFired() (begin bool) {
	if !s.overslept && s.lister.trust.now().overslept(s.due, time.Now()) {
		s.overslept = true
		s.timer.Reset(catchUp)
		return false
	}
	return true
}

// requestNow takes a request of a list at once and reports whether the list begins
// now: not if the last requested one has only just ended.
func (s *schedule) requestNow() (begin bool) {
	s.requested = true
	next := s.served.Add(min(s.lister.opts.RelistPeriod, maxRequestPause))
	if !next.After(time.Now()) {
		return true
	}
	if s.soon.IsZero() || next.Before(s.soon) {
		s.soon = next
	}
	s.setTimer()
	return false
}

// requestSoon takes a request of a list within the relist period.
func (s *schedule) requestSoon() (begin bool) {
	if s.soon.IsZero() { // requests may keep coming
		s.soon = time.Now().Add(s.lister.opts.RelistPeriod)
	}
	s.setTimer()
	return false
}

// trustChanged takes a report about the stream. One that has ended has no events that
// would go first.
func (s *schedule) trustChanged() (begin bool) {
	s.overslept = s.overslept && s.lister.trust.now().up
	s.setTimer()
	return false
}

// listBegins notes a request that waits: the list covers it.
func (s *schedule) listBegins() {
	select {
	case <-s.lister.relistNow:
		s.requested = true
	default:
	}
}

// listEnded sets the time of the next list.
func (s *schedule) listEnded() {
	s.ended = time.Now()
	if s.requested {
		s.served = s.ended
	}
	s.requested, s.soon, s.overslept = false, time.Time{}, false
	s.setTimer()
}

// setTimer sets the timer for the next list: a period after the last one ended, but no
// later than soon if that is set.
func (s *schedule) setTimer() {
	if s.overslept {
		return
	}
	s.due = s.ended.Add(s.lister.period())
	if !s.soon.IsZero() && s.soon.Before(s.due) {
		s.due = s.soon
	}
	if now := time.Now(); s.due.Before(now) { // the period became shorter
		s.due = now
	}
	s.timer.Reset(time.Until(s.lister.wakeAt(s.due)))
}

// wakeAt is when the next list begins: when it is due, or at once if a stream has come
// up or ended since the last list began, or when a stream comes up.
func (l *Lister) wakeAt(due time.Time) time.Time {
	stream := l.trust.now()
	if !stream.sameStream(l.listing) {
		return time.Now()
	}
	if up := stream.nextProof(); !up.IsZero() && up.Before(due) {
		return up
	}
	return due
}
