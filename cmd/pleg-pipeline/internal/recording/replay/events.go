package replay

import (
	"context"
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

// sendEvents sends the events at their times and ends as the recorded stream did.
// It sends each event once, to the client that is connected at its time, or that
// opens the first stream after it.
func (s *Server) sendEvents(ctx context.Context, stream grpc.ServerStream) error {
	in, err := s.openSession()
	if err != nil {
		return err
	} else if in == nil {
		return hang(ctx)
	}
	defer s.closeSession()
	for event := s.nextEvent(in); event != nil; event = s.nextEvent(in) {
		if err := s.waitUntil(ctx, event.at); err != nil {
			return err
		}
		if err := stream.SendMsg(s.moved(event.event)); err != nil {
			return err
		}
		s.mu.Lock()
		s.sent++
		s.mu.Unlock()
		s.give(event)()
	}
	if in.end == nil {
		if err := s.waitUntil(ctx, s.recording.Length); err != nil {
			return err
		}
		return errSessionEnd
	}
	if err := s.waitUntil(ctx, in.end.at); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.recording.sessions; s.session < len(all)-1 && all[s.session] == in {
		s.session, s.sent = s.session+1, 0
	}
	return in.end.err
}

// openSession returns the stream of the time, or nil if no more streams follow.
func (s *Server) openSession() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, all := s.now(), s.recording.sessions
	if len(all) == 0 {
		return nil, errNoEvents
	}
	for s.session < len(all)-1 && all[s.session].end != nil && all[s.session].end.at <= now && s.sent >= len(all[s.session].events) {
		s.session, s.sent = s.session+1, 0
	}
	in := all[s.session]
	switch {
	case now >= s.recording.Length && s.sent >= len(in.events):
		return nil, nil
	case in.opened > now+s.scaled(slack), s.open:
		return nil, errNoSession
	}
	s.open = true
	s.byEvents = s.byEvents || in.end == nil || in.end.at-in.opened > unsupportedWithin
	return in, nil
}

func (s *Server) closeSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = false
}

func (s *Server) nextEvent(of *session) *step {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent >= len(of.events) {
		return nil
	}
	return of.events[s.sent]
}

func (s *Server) waitUntil(ctx context.Context, at time.Duration) error {
	s.mu.Lock()
	wait := at - s.now()
	s.mu.Unlock()
	return s.sleep(ctx, wait)
}

// moved returns an event as if it were created now, since clients compare that time
// with the times of lists. All other times stay.
func (s *Server) moved(event *cri.ContainerEventResponse) proto.Message {
	if event.GetCreatedAt() <= 0 || s.recording.Header.Began.IsZero() {
		return event
	}
	s.mu.Lock()
	started := s.started
	s.mu.Unlock()
	since := time.Unix(0, event.GetCreatedAt()).Sub(s.recording.Header.Began)
	now := proto.CloneOf(event)
	now.CreatedAt = started.Add(time.Duration(float64(since) / s.speed)).UnixNano()
	return now
}
