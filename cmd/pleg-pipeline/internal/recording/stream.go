package recording

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var (
	errNoEvents  = status.Error(codes.Unimplemented, "the recording has no events")
	errStreaming = status.Error(codes.Unavailable, "another client has the recorded event stream")
	errStreamEnd = status.Error(codes.Unavailable, "the recording has ended")
)

// sendEvents sends the events at their times and ends as the recorded stream did.
// It sends each event once, to the client that is connected at its time, or that
// opens the first stream after it.
func (s *Server) sendEvents(ctx context.Context, stream grpc.ServerStream) error {
	if err := s.openStream(); err != nil {
		return err
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open = false
	}()
	for _, next := range s.recording.stream[s.sent:] { // only the open stream changes sent
		if err := s.waitUntil(ctx, next.at); err != nil {
			return err
		}
		if !next.ended {
			if err := stream.SendMsg(s.moved(next.event)); err != nil {
				return err
			}
		}
		s.mu.Lock()
		s.sent, s.lastNew = s.sent+1, time.Now()
		s.mu.Unlock()
		if next.ended {
			return next.err
		}
	}
	return hang(ctx)
}

// openStream opens the stream for one client.
func (s *Server) openStream() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.recording.stream
	rest := all[s.sent:]
	switch {
	case len(all) == 0:
		return errNoEvents
	case s.open:
		return errStreaming
	case len(rest) == 0 && s.now() < s.recording.Length: // no further stream was recorded
		return cmp.Or(all[len(all)-1].err, errStreamEnd)
	}
	s.open = true
	s.byEvents = slices.ContainsFunc(all, func(a *step) bool { return a.event != nil })
	return nil
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
