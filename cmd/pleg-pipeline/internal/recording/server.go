package recording

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// quiet is how long after the end nothing new must be asked for.
	quiet = 500 * time.Millisecond
	// checkEvery is how often the server checks for the end.
	checkEvery = 50 * time.Millisecond
	// streamBatch is the number of items in one message of a streamed list.
	streamBatch = 1000
)

// Server is a container runtime that answers as recorded.
type Server struct {
	recording *Recording
	speed     float64
	ended     chan struct{} // closed when everything has been played
	start     sync.Once
	started   time.Time // of the first call, set by start

	mu     sync.Mutex
	world  *world
	next   int     // the step to apply next
	rounds []round // to come
	shown  [kinds][]*item
	how    [kinds]*step // the lists that were recorded of what is shown; nil before the first
	asked  [kinds]bool  // which lists of the shown round have been asked for
	begun  bool         // the first round has been opened
	sent   int          // how much of the event stream has been sent
	open   bool         // a client has it open
	// byEvents is set once a client has followed events: then they determine the
	// order.
	byEvents bool
	missing  map[string]bool

	giving  int       // calls under way
	over    bool      // a list from after the end has been asked for
	lastNew time.Time // when that was, or a status or an event was last sent
}

// NewServer returns a server that plays r speed times as fast as recorded, the
// duration of calls included. speed must be positive.
func NewServer(r *Recording, speed float64) *Server {
	return &Server{
		recording: r, speed: speed, ended: make(chan struct{}), world: newWorld(r.Header.Began), rounds: r.rounds,
		missing: make(map[string]bool),
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

// waitForEnd closes ended when everything has been played, unless ctx ends before.
func (s *Server) waitForEnd(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for ended := false; !ended; {
		select {
		case <-check.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		ended = s.over && s.giving == 0 && time.Since(s.lastNew) >= quiet
		s.mu.Unlock()
	}
	close(s.ended)
}

// handle answers any call.
func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	m, ok := methods[path.Base(name)]
	if !ok || path.Dir(name) != "/"+cri.RuntimeService_ServiceDesc.ServiceName || m.shape == asksStreamedList && !s.recording.streams {
		return status.Errorf(codes.Unimplemented, "the recorded runtime does not have %s", name)
	}
	request := empty(m.request)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	s.start.Do(func() { s.started = time.Now() })
	ctx := stream.Context()
	switch m.shape {
	case asksEvents:
		return s.sendEvents(ctx, stream)
	case asksStatus:
		return s.sendStatus(ctx, stream, questionOf(m.kind, request))
	case asksVersion:
		return s.send(ctx, stream, s.recording.version)
	default:
		return s.sendList(ctx, stream, m, request)
	}
}

// sendList sends a list: one message, or several if it is streamed.
func (s *Server) sendList(ctx context.Context, stream grpc.ServerStream, m method, request proto.Message) error {
	var items []*item
	var how *step
	if proto.Size(request) > 0 {
		items, how = s.chooseFiltered(m.kind, request)
	} else {
		items, how = s.chooseList(m.kind)
	}
	if err := s.play(ctx, how); err != nil {
		return err
	}
	for first := true; len(items) > 0 || first && m.shape == asksList; first = false {
		n := len(items)
		if m.shape == asksStreamedList {
			n = min(n, streamBatch)
		}
		answer := empty(m.reply)
		for _, it := range items[:n] {
			itemsOf(answer).Append(protoreflect.ValueOfMessage(it.message.ProtoReflect()))
		}
		if err := stream.SendMsg(answer); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

func (s *Server) sendStatus(ctx context.Context, stream grpc.ServerStream, asked question) error {
	s.mu.Lock()
	s.advance(s.position())
	found := s.chooseStatus(asked)
	listed, _ := s.world.find(asked.kind, asked.text)
	missing := found == nil && listed != nil
	if missing {
		s.missing[asked.text] = true
	}
	s.mu.Unlock()
	switch {
	case missing:
		return hang(ctx)
	case found == nil:
		return status.Errorf(codes.NotFound, "the recording has no status of %s", asked.text)
	}
	return s.send(ctx, stream, found)
}

// send sends a recorded answer after its time.
func (s *Server) send(ctx context.Context, stream grpc.ServerStream, recorded *step) error {
	if err := s.play(ctx, recorded); err != nil {
		return err
	}
	return stream.SendMsg(recorded.answer)
}

// play waits for as long as a call took, and returns its error. It does nothing
// without a call.
func (s *Server) play(ctx context.Context, answer *step) error {
	switch {
	case answer == nil:
		return nil
	case answer.pending:
		return hang(ctx)
	}
	s.mu.Lock()
	s.giving++
	s.mu.Unlock()
	err := s.waitUntil(ctx, s.now()+answer.took)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.giving--; answer.answer != nil { // not after errors: they are retried again and again
		s.lastNew = time.Now()
	}
	return cmp.Or(err, answer.err)
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

// now returns the time of the recording, which starts with the first call.
func (s *Server) now() time.Duration { return s.scaled(time.Since(s.started)) }

// scaled returns how much of the recording is played in a time.
func (s *Server) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * s.speed) }

// waitUntil waits for a time of the recording.
func (s *Server) waitUntil(ctx context.Context, at time.Duration) error {
	timer := time.NewTimer(time.Duration(float64(at-s.now()) / s.speed))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return hang(ctx)
	}
}
