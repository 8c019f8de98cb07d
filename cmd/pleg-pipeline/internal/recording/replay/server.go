package replay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording/format"
)

const (
	// slack is how early an answer may be given: two runs of a pipeline do not call
	// at exactly the same time.
	slack = 500 * time.Millisecond
	// quiet is how long after the end nothing new must be asked for.
	quiet = 500 * time.Millisecond
	// checkEvery is how often the server checks for the end.
	checkEvery = 50 * time.Millisecond
	// pairWithin is the longest time between the two lists of a round.
	pairWithin = 500 * time.Millisecond
)

// Server is a container runtime that answers as recorded.
type Server struct {
	recording *Recording
	speed     float64
	ended     chan struct{} // closed when everything has been played

	mu      sync.Mutex
	started time.Time // of the first call; zero before
	world   *world
	next    int     // the step to apply next
	rounds  []round // to come
	shown   [format.Kinds][]*entry
	how     [format.Kinds]*step // the lists that were recorded of what is shown; nil before the first
	asked   [format.Kinds]bool  // which lists of the shown round have been asked for
	shownAt time.Time
	session int  // the event stream under way or to come
	sent    int  // its events that have been sent
	open    bool // a client has it open
	// byEvents is set once a client has followed events: then they determine the
	// order.
	byEvents bool
	given    map[*step]bool
	missing  map[string]bool

	giving    int       // calls under way whose answer is given for the first time
	lastGiven time.Time // when the last of them ended
	lastList  time.Time // when a list from after the end was answered
}

// NewServer returns a server that plays r speed times as fast as recorded, the
// duration of calls included. speed must be positive.
func NewServer(r *Recording, speed float64) *Server {
	return &Server{
		recording: r, speed: speed, ended: make(chan struct{}),
		world: newWorld(r.Header.Began), rounds: r.rounds,
		given: make(map[*step]bool), missing: make(map[string]bool),
	}
}

// Ended is closed when the recording has been played: each list that differs from
// the one before has been asked for, each event has been sent, and the client has
// made the calls that follow.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Missing returns how many sandboxes and containers have no recorded status, since
// the recording ended before. Calls for them hang.
func (s *Server) Missing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.missing)
}

// Serve answers on listener, which it closes, until ctx ends. Then it cancels the
// calls under way and returns the cause.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer(grpc.UnknownServiceHandler(s.handle))
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve a recording: %w", err)
		}
		return nil
	})
	parts.Go(func() error {
		s.waitForEnd(ctx)
		<-ctx.Done()
		server.Stop()
		return context.Cause(ctx)
	})
	return parts.Wait()
}

// handle answers any call.
func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	call, _ := strings.CutPrefix(name, "/"+cri.RuntimeService_ServiceDesc.ServiceName+"/")
	m, ok := format.Methods[call]
	if !ok || format.IsStreamedList(call) && !s.recording.streams {
		return status.Errorf(codes.Unimplemented, "the recorded runtime does not have %s", name)
	}
	request := format.Empty(m.Request)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	ctx := stream.Context()
	var answers []proto.Message
	var err error
	switch {
	case m.List:
		answers, err = s.list(ctx, call, request)
	case m.Status:
		answers, err = s.status(ctx, m.Kind, format.IDOf(m.Kind, request))
	case call == format.CallEvents:
		return s.sendEvents(ctx, stream)
	default:
		answers, err = s.version(ctx)
	}
	for _, answer := range answers {
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
	}
	return err
}

func (s *Server) version(ctx context.Context) ([]proto.Message, error) {
	s.mu.Lock()
	s.now()
	s.mu.Unlock()
	h := s.recording.Header
	return []proto.Message{&cri.VersionResponse{
		Version: "0.1.0", RuntimeName: h.RuntimeName, RuntimeVersion: h.RuntimeVersion, RuntimeApiVersion: "v1",
	}}, s.sleep(ctx, s.recording.version)
}

// The methods from here to advance need the lock.

// now returns the time of the recording, which starts with the first call.
func (s *Server) now() time.Duration {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	return s.scaled(time.Since(s.started))
}

// scaled returns how much of the recording is played in a time.
func (s *Server) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * s.speed) }

// position is the time up to which answers may be given: not after a list that has
// not been asked for.
func (s *Server) position() time.Duration {
	now := s.now()
	if r := s.nextRound(); r != nil && !s.byEvents {
		return min(now, r.at-1)
	}
	return now
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

// play waits for as long as the call took, and returns its error.
func (s *Server) play(ctx context.Context, answer *step) error {
	if answer.pending {
		return hang(ctx)
	}
	defer s.give(answer)()
	if err := s.sleep(ctx, answer.took); err != nil {
		return err
	}
	return answer.err
}

// give marks an answer as given. The caller calls sent when the call ends.
func (s *Server) give(answer *step) (sent func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.given[answer] {
		return func() {}
	}
	s.given[answer] = true
	s.giving++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.giving--
		s.lastGiven = time.Now()
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// sleep waits for a time of the recording.
func (s *Server) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(time.Duration(float64(d) / s.speed))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// waitForEnd closes ended when everything has been played, unless ctx ends before.
func (s *Server) waitForEnd(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case <-check.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		over := !s.lastList.IsZero() && time.Since(s.lastList) >= quiet && s.giving == 0 && time.Since(s.lastGiven) >= quiet
		s.mu.Unlock()
		if over {
			close(s.ended)
			return
		}
	}
}
