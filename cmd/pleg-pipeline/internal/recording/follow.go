package recording

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	errNoEvents   = status.Error(codes.Unimplemented, "the recording has no events")
	errNoSession  = status.Error(codes.Unavailable, "no stream of events was open at this time of the recording")
	errSessionEnd = status.Error(codes.Unavailable, "the recording has ended")
)

// offWithin is how soon a runtime ends a stream that it does not offer.
const offWithin = time.Second

// GetContainerEvents sends the events at their times and ends as the recorded
// stream did. Each event is sent once, to whoever follows at its time or opens
// the first stream after it.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ctx := stream.Context()
	session, err := s.openSession()
	if session == nil {
		if err == nil {
			return s.hang(ctx)
		}
		return err
	}
	defer s.leaveSession()
	for {
		event, more := s.nextEvent(session)
		if !more {
			break
		}
		if err := s.until(ctx, event.at); err != nil {
			return err
		}
		if err := stream.Send(s.moved(event.event)); err != nil {
			return err
		}
		s.hadEvent(event)
	}
	if !session.ended {
		if err := s.until(ctx, s.recording.Length); err != nil {
			return err
		}
		return errSessionEnd
	}
	if err := s.until(ctx, session.end); err != nil {
		return err
	}
	s.endSession(session)
	return session.err
}

// openSession returns the stream of the time, or what is the answer to one who
// asks for it; neither means that there will be none any more.
func (s *Server) openSession() (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	all := s.recording.sessions
	if len(all) == 0 {
		return nil, errNoEvents
	}
	for s.session < len(all)-1 && all[s.session].ended && all[s.session].end <= now && s.sent >= len(all[s.session].events) {
		s.session, s.sent = s.session+1, 0
	}
	session := all[s.session]
	switch {
	case now >= s.recording.Length && s.sent >= len(session.events):
		return nil, nil
	case session.opened > now+s.scaled(slack), s.follows:
		return nil, errNoSession
	}
	s.follows = true
	s.followed = s.followed || !session.ended || session.end-session.opened > offWithin
	return session, nil
}

func (s *Server) leaveSession() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follows = false
}

// endSession goes on to the next stream, if there is one.
func (s *Server) endSession(ended *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if all := s.recording.sessions; s.session < len(all)-1 && all[s.session] == ended {
		s.session, s.sent = s.session+1, 0
	}
}

func (s *Server) nextEvent(of *session) (event *step, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent >= len(of.events) {
		return nil, false
	}
	return of.events[s.sent], true
}

func (s *Server) hadEvent(event *step) {
	s.mu.Lock()
	s.sent++
	s.mu.Unlock()
	s.done(s.hear(&event.outcome))
}

// until waits for a time of the recording.
func (s *Server) until(ctx context.Context, at time.Duration) error {
	s.mu.Lock()
	wait := time.Duration(float64(at-s.now()) / s.speed)
	s.mu.Unlock()
	return s.sleep(ctx, wait)
}

// moved returns an event as if it were made now: its time is compared with that
// of the lists. All other times are those of the recording.
func (s *Server) moved(event *runtimeapi.ContainerEventResponse) *runtimeapi.ContainerEventResponse {
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
