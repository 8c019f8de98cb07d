package recording

import (
	"context"
	"errors"
	"sort"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	errNoEvents   = status.Error(codes.Unimplemented, "the recording has no events")
	errNoSession  = status.Error(codes.Unavailable, "no event stream was open at this time of the recording")
	errSessionEnd = status.Error(codes.Unavailable, "the recording has ended")
)

// unsupportedWithin is how soon a runtime ends a stream that it does not support.
const unsupportedWithin = time.Second

// now returns the time of the recording, which starts with the first call.
func (s *Server) now() time.Duration { return s.scaled(time.Since(s.started)) }

// scaled returns how much of the recording is played in a time.
func (s *Server) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * s.speed) }

// The methods from here to firstNotGiven need the lock.

// position is the time up to which answers may be given: not after a list that has
// not been asked for.
func (s *Server) position() time.Duration {
	if r := s.nextRound(); r != nil && !s.byEvents {
		return min(s.now(), r.at-1)
	}
	return s.now()
}

// nextRound returns the next round that differs, or nil.
func (s *Server) nextRound() *round {
	for len(s.rounds) > 0 && !s.rounds[0].distinct {
		s.rounds = s.rounds[1:]
	}
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

// openRound begins a round: the next one of the recording if it is due or the
// first, or else the world as it is.
func (s *Server) openRound() {
	at := s.now()
	if r := s.nextRound(); r != nil {
		switch first := s.shownAt.IsZero(); {
		case first, s.byEvents && r.at <= at+s.scaled(slack):
			at = max(at, r.at)
		case !s.byEvents:
			at = min(at, r.at)
		}
	}
	s.advance(at)
	s.shown, s.how, s.shownAt, s.asked = s.world.view, s.world.last, time.Now(), [kinds]bool{}
}

// chooseStatus returns the recorded answer, or nil if there is none. An answer from
// before the item's state was first seen does not count, unless it has that state.
func (s *Server) chooseStatus(key statusKey) *step {
	answers, e := s.recording.statuses[key], s.world.known[key.kind][key.id]
	var since time.Duration
	if e != nil {
		since = e.changed
	}
	now := s.position()
	if s.byEvents {
		if a := s.firstNotGiven(answers, since, now); a != nil {
			return a
		}
	} else {
		// Any answer from between two lists is one to a call after the first.
		now += s.scaled(slack)
		if next := s.nextRound(); next != nil {
			now = min(now, next.at)
		}
	}
	last := firstAt(answers, now+1) - 1
	if last >= 0 && answers[last].at >= since {
		return answers[last]
	}
	if next := firstAt(answers, since); next < len(answers) {
		return answers[next]
	}
	if last < 0 {
		return nil
	}
	if a := answers[last]; e == nil || a.status == nil || newItem(field(a.status, "status").Message().Interface()).state == e.state {
		return a
	}
	return nil
}

// firstNotGiven returns the first answer of about this time that has not been
// given, or nil. With events a pipeline makes the same calls at the same times.
func (s *Server) firstNotGiven(answers []*step, since, now time.Duration) *step {
	for _, a := range answers[firstAt(answers, max(since, now-s.scaled(slack))):] {
		if a.at > now+s.scaled(slack) {
			return nil
		}
		if !a.carried && !s.given[a] {
			return a
		}
	}
	return nil
}

// firstAt returns the index of the first answer from a time on.
func firstAt(answers []*step, at time.Duration) int {
	return sort.Search(len(answers), func(i int) bool { return answers[i].at >= at })
}

// sendEvents sends the events at their times and ends as the recorded stream did.
// It sends each event once, to the client that is connected at its time, or that
// opens the first stream after it.
func (s *Server) sendEvents(ctx context.Context, stream grpc.ServerStream) error {
	in, events, err := s.openSession()
	if err != nil {
		return err
	} else if in == nil {
		return hang(ctx)
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = false
	}()
	for _, event := range events {
		if err := s.waitUntil(ctx, event.at); err != nil {
			return err
		}
		if err := stream.SendMsg(s.moved(event.event)); err != nil {
			return err
		}
		s.mu.Lock()
		s.sent, s.lastGiven = s.sent+1, time.Now()
		s.mu.Unlock()
	}
	if err := s.waitUntil(ctx, in.end.at); err != nil {
		return err
	}
	return in.end.err
}

// openSession returns the stream of the time and its events that have not been
// sent, or nil if no more streams follow.
func (s *Server) openSession() (*session, []*step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, all := s.now(), s.recording.sessions
	if len(all) == 0 {
		return nil, nil, errNoEvents
	}
	for s.session < len(all)-1 && all[s.session].end.at <= now+s.scaled(time.Millisecond) && s.sent >= len(all[s.session].events) {
		s.session, s.sent = s.session+1, 0
	}
	in := all[s.session]
	switch {
	case now >= s.recording.Length && s.sent >= len(in.events):
		return nil, nil, nil
	case in.opened > now+s.scaled(slack), s.open:
		return nil, nil, errNoSession
	}
	s.open = true
	s.byEvents = s.byEvents || errors.Is(in.end.err, errSessionEnd) || in.end.at-in.opened > unsupportedWithin
	return in, in.events[s.sent:], nil
}

// moved returns an event as if it were created now, since clients compare that time
// with the times of lists. All other times stay.
func (s *Server) moved(event *cri.ContainerEventResponse) proto.Message {
	if event.GetCreatedAt() <= 0 || s.recording.Header.Began.IsZero() {
		return event
	}
	since := time.Unix(0, event.GetCreatedAt()).Sub(s.recording.Header.Began)
	now := proto.CloneOf(event)
	now.CreatedAt = s.started.Add(time.Duration(float64(since) / s.speed)).UnixNano()
	return now
}
