package dispatcher

import (
	"errors"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// errEnded is the error of next when its channel ended has been closed.
var errEnded = errors.New("the wait has ended")

// next returns the next event, and waits for it until ended is closed.
func (s *Subscription) next(ended <-chan struct{}) (pleg.Event, error) {
	for {
		select {
		case <-s.left:
			return pleg.Event{}, pleg.ErrClosed
		case <-ended:
			return pleg.Event{}, errEnded
		default:
		}
		if ev, ok := s.take(); ok {
			if s.options.Statuses && ev.PodUID != "" {
				ev.Status = s.d.opts.Status(ev.PodUID)
			}
			return ev, nil
		}
		if s.reader.placed && s.reader.seen.stopped {
			return pleg.Event{}, pleg.ErrStopped
		}
		s.wait(ended)
	}
}

// wait waits until there may be something to take, or until the subscription or the wait ends.
func (s *Subscription) wait(ended <-chan struct{}) {
	var changed <-chan struct{}
	if s.reader.placed {
		changed = s.reader.seen.changed
	}
	select {
	case p := <-s.positions:
		s.place(p)
	case <-changed:
	case <-s.left:
	case <-ended:
	}
}

// place makes the reader continue at a position.
func (s *Subscription) place(p position) {
	s.reader.placed = true
	s.reader.synced, s.reader.syncing = p.seq, p.gap != "" || s.options.Replay || s.options.After != (pleg.Position{}) || !s.options.Since.IsZero()
	at := p.at
	switch {
	case p.gap != "":
		s.reader.gap = s.newMark(pleg.Gap, p.seq)
		s.reader.gap.Reason, s.reader.gap.Missed = p.gap, p.missed
	case !s.options.Since.IsZero():
		if at = s.d.log.before(s.options.Since, p.seq); !s.options.Replay {
			s.reader.skip = p.seq
		}
	}
	s.at.Store(at)
	s.reader.replay = replay(p.pods, &s.filter, at)
}

// take returns the next event, if it is there.
func (s *Subscription) take() (ev pleg.Event, ok bool) {
	switch {
	case !s.reader.placed:
		return ev, false
	case s.reader.gap != nil:
		ev, s.reader.gap = *s.reader.gap, nil
		s.count(&ev)
		return ev, true
	case len(s.reader.replay) > 0:
		ev, s.reader.replay = s.reader.replay[0].event, s.reader.replay[1:]
		ev.Replayed = true
		return ev, true
	}
	s.reader.replay = nil
	for {
		s.reader.seen = s.d.log.state.Load()
		at := s.at.Load()
		switch mark := s.reader.seen.mark; {
		case s.reader.syncing && s.reader.seen.synced != nil && at >= max(s.reader.synced, *s.reader.seen.synced):
			s.reader.syncing = false
			return *s.newMark(pleg.Synced, at), true
		case s.options.Bookmarks && mark != s.reader.mark && at >= mark.seq:
			s.reader.mark = mark
			ev = *s.newMark(pleg.Bookmark, at)
			ev.ObservedAt = mark.currentFor(s)
			return ev, true
		case at >= s.reader.seen.newest:
			return ev, false
		}
		e := s.d.log.at(at + 1)
		if e == nil {
			return s.fallenOut(at)
		}
		s.at.Store(at + 1)
		if s.wants(e) {
			return e.event, true
		}
	}
}

func (s *Subscription) wants(e *entry) bool {
	return s.filter.WantsEvent(&e.event) && s.filter.WantsLabels(e.labels) &&
		(e.event.Seq > s.reader.skip || !happened(&e.event).Before(s.options.Since))
}

// fallenOut asks for the present state, because the log has moved past the position. If no more
// events come, the subscriber only gets the Gap, and no mark after it.
func (s *Subscription) fallenOut(at uint64) (ev pleg.Event, ok bool) {
	if !s.reader.seen.stopped && s.d.callers.Put(s) {
		s.reader.placed = false
		return ev, false
	}
	ev = s.stopped(at)
	s.at.Store(ev.Seq)
	s.reader.syncing, s.reader.mark = false, s.reader.seen.mark
	s.count(&ev)
	return ev, true
}

// count counts a Gap that the reader gets.
func (s *Subscription) count(gap *pleg.Event) {
	s.counts.gaps.Add(1)
	s.counts.missed.Add(gap.Missed)
	s.d.metrics.missed.Add(float64(gap.Missed))
}

// stopped returns the Gap in place of the events after a number, once no more events come.
func (s *Subscription) stopped(after uint64) pleg.Event {
	newest := s.d.log.state.Load().newest
	ev := s.newMark(pleg.Gap, newest)
	ev.Reason, ev.Missed = pleg.Stopped, newest-after
	return *ev
}

func (s *Subscription) newMark(t pleg.EventType, seq uint64) *pleg.Event {
	return &pleg.Event{Type: t, Seq: seq, Epoch: s.d.epoch, ObservedAt: time.Now()}
}
