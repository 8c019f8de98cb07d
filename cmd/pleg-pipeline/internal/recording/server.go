package recording

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// slack is how early an answer may be given: two runs of a pipeline do not
	// ask at the very same time.
	slack = 500 * time.Millisecond
	// quiet is for how long nothing new must have been asked for, after the end,
	// until all is taken to be played.
	quiet = 500 * time.Millisecond
	// lookEvery is how often that is looked at.
	lookEvery = 50 * time.Millisecond
	// pairWithin is how far the two lists of a round may be apart.
	pairWithin = 500 * time.Millisecond
)

// Server is a container runtime that answers as recorded. What is in the
// recording cannot be changed; calls that a pipeline does not make are not
// implemented.
type Server struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	recording *Recording
	speed     float64
	ended     chan struct{} // closed when all has been played

	mu      sync.Mutex
	started time.Time // of the first call; zero before
	world   *world
	next    int // the step to apply next
	rounds  []round
	shown   snapshot
	asked   [kinds]bool // which lists of the round that is shown have been asked for
	shownAt time.Time   // when the first was
	session int         // the stream of events to come or under way
	sent    int         // its events that have been sent
	follows bool        // a stream of events is under way
	// followed is set once one has been: then the order comes from the events.
	followed bool
	heard    map[*outcome]bool
	missing  map[string]bool
	closing
}

// NewServer returns a server of a recording. speed is how many times as fast as
// recorded it is played, the time that calls take included; it must be positive.
func NewServer(r *Recording, speed float64) *Server {
	return &Server{
		recording: r, speed: speed, ended: make(chan struct{}),
		world: newWorld(r.Header.Began), rounds: r.rounds,
		heard: make(map[*outcome]bool), missing: make(map[string]bool),
	}
}

// Ended is closed when the recording has been played to its end: every list that
// differed from the one before has been asked for, every event has been sent,
// and the client has asked for what follows from them.
func (s *Server) Ended() <-chan struct{} { return s.ended }

// Missing returns how many sandboxes and containers were asked for whose status
// the recording does not have, since it ended before they had been asked for.
// Such calls hang.
func (s *Server) Missing() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.missing)
}

// Serve answers on listener, which it closes, until ctx ends, and returns the
// cause then. Calls under way are broken off.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, s)
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error {
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("serve a recording: %w", err)
		}
		return nil
	})
	parts.Go(func() error {
		s.awaitEnd(ctx)
		<-ctx.Done()
		server.Stop()
		return context.Cause(ctx)
	})
	return parts.Wait()
}

// now returns the time of the recording, which begins with the first call. It
// needs the lock.
func (s *Server) now() time.Duration {
	if s.started.IsZero() {
		s.started = time.Now()
	}
	return s.scaled(time.Since(s.started))
}

// scaled returns how much of the recording is played in a time.
func (s *Server) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * s.speed) }

// position is how far the answers may go: while a list waits to be asked for,
// up to it. It needs the lock.
func (s *Server) position() time.Duration {
	now := s.now()
	if s.followed {
		return now
	}
	if r := s.nextRound(); r != nil {
		return min(now, r.at-1)
	}
	return now
}

// nextRound returns the next round that shows something else, or nil. It needs
// the lock.
func (s *Server) nextRound() *round {
	for len(s.rounds) > 0 && !s.rounds[0].distinct {
		s.rounds = s.rounds[1:]
	}
	if len(s.rounds) == 0 {
		return nil
	}
	return &s.rounds[0]
}

// advance has the world be that of a time. It needs the lock.
func (s *Server) advance(to time.Duration) {
	for s.next < len(s.recording.steps) && s.recording.steps[s.next].at <= to {
		s.world.apply(s.recording.steps[s.next])
		s.next++
	}
	for len(s.rounds) > 0 && s.rounds[0].at <= to {
		s.rounds = s.rounds[1:]
	}
}

// play lets a call take the time that it took, and returns its error.
func (s *Server) play(ctx context.Context, o *outcome) error {
	if o.pending {
		return s.hang(ctx)
	}
	news := s.hear(o)
	defer s.done(news)
	if err := s.sleep(ctx, time.Duration(float64(o.took)/s.speed)); err != nil {
		return err
	}
	return o.err
}

// hang waits for the end of the call.
func (s *Server) hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// sleep waits for a time of the clock on the wall.
func (*Server) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// Version answers as the runtime did.
func (s *Server) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	s.mu.Lock()
	s.now()
	s.mu.Unlock()
	if err := s.sleep(ctx, time.Duration(float64(s.recording.version)/s.speed)); err != nil {
		return nil, err
	}
	h := s.recording.Header
	return &runtimeapi.VersionResponse{
		Version: "0.1.0", RuntimeName: h.RuntimeName, RuntimeVersion: h.RuntimeVersion, RuntimeApiVersion: "v1",
	}, nil
}

// errNoStreams is what a runtime answers that cannot stream its lists.
var errNoStreams = status.Error(codes.Unimplemented, "the recorded runtime does not stream lists")
