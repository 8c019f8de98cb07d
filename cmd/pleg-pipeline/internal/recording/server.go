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
	// slack is how early an answer may be given: two runs of a pipeline do not call
	// at exactly the same time.
	slack = 500 * time.Millisecond
	// quiet is how long after the end nothing new must be asked for.
	quiet = 500 * time.Millisecond
	// checkEvery is how often the server checks for the end.
	checkEvery = 50 * time.Millisecond
	// pairWithin is the longest time between the two lists of a round.
	pairWithin = 500 * time.Millisecond
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

	mu      sync.Mutex
	world   *world
	next    int     // the step to apply next
	rounds  []round // to come
	shown   [kinds][]*item
	how     [kinds]*step // the lists that were recorded of what is shown; nil before the first
	asked   [kinds]bool  // which lists of the shown round have been asked for
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
		recording: r, speed: speed, ended: make(chan struct{}), world: newWorld(r.Header.Began), rounds: r.rounds,
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

// waitForEnd closes ended when everything has been played, unless ctx ends before.
func (s *Server) waitForEnd(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for over := false; !over; {
		select {
		case <-check.C:
		case <-ctx.Done():
			return
		}
		s.mu.Lock()
		over = !s.lastList.IsZero() && time.Since(s.lastList) >= quiet && s.giving == 0 && time.Since(s.lastGiven) >= quiet
		s.mu.Unlock()
	}
	close(s.ended)
}

// handle answers any call.
func (s *Server) handle(_ any, stream grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(stream)
	call := path.Base(name)
	m, ok := methods[call]
	if !ok || path.Dir(name) != "/"+cri.RuntimeService_ServiceDesc.ServiceName || m.streamed && !s.recording.streams {
		return status.Errorf(codes.Unimplemented, "the recorded runtime does not have %s", name)
	}
	request := empty(m.request)
	if err := stream.RecvMsg(request); err != nil {
		return err
	}
	s.start.Do(func() { s.started = time.Now() })
	ctx := stream.Context()
	var answers []proto.Message
	var err error
	switch {
	case m.list:
		answers, err = s.list(ctx, m, filterOf(request))
	case m.status:
		answers, err = s.status(ctx, statusKey{m.kind, field(request, messages[m.kind].id).String()})
	case call == callEvents:
		return s.sendEvents(ctx, stream)
	default:
		h := s.recording.Header
		answers = []proto.Message{&cri.VersionResponse{
			Version: "0.1.0", RuntimeName: h.RuntimeName, RuntimeVersion: h.RuntimeVersion, RuntimeApiVersion: "v1",
		}}
		err = s.waitUntil(ctx, s.now()+s.recording.version)
	}
	for i := 0; i < len(answers) && err == nil; i++ {
		err = stream.SendMsg(answers[i])
	}
	return err
}

// list returns the messages of a list: one, or several if it is streamed.
func (s *Server) list(ctx context.Context, m method, filter proto.Message) ([]proto.Message, error) {
	choose := s.chooseList
	if filter != nil {
		choose = s.chooseFiltered
	}
	items, how, last := choose(m.kind, filter)
	if last {
		defer s.noteLastList()
	}
	if err := s.play(ctx, how); err != nil {
		return nil, err
	}
	var answers []proto.Message
	if !m.streamed {
		answers = append(answers, empty(m.reply))
	}
	for i, it := range items {
		if m.streamed && i%streamBatch == 0 {
			answers = append(answers, empty(m.reply))
		}
		itemsOf(answers[len(answers)-1]).Append(protoreflect.ValueOfMessage(it.message.ProtoReflect()))
	}
	return answers, nil
}

func (s *Server) status(ctx context.Context, key statusKey) ([]proto.Message, error) {
	s.mu.Lock()
	s.advance(s.position())
	found := s.chooseStatus(key)
	missing := found == nil && s.recording.final[key.kind][key.id] != nil
	if missing {
		s.missing[key.id] = true
	}
	s.mu.Unlock()
	switch {
	case missing:
		return nil, hang(ctx)
	case found == nil:
		return nil, status.Errorf(codes.NotFound, "the recording has no status of %s", key.id)
	}
	return []proto.Message{found.status}, s.play(ctx, found)
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
	first := !s.given[answer]
	if s.given[answer] = true; first {
		s.giving++
	}
	s.mu.Unlock()
	err := s.waitUntil(ctx, s.now()+answer.took)
	if first {
		s.mu.Lock()
		s.giving, s.lastGiven = s.giving-1, time.Now()
		s.mu.Unlock()
	}
	return cmp.Or(err, answer.err)
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return status.FromContextError(ctx.Err()).Err()
}

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
