package recording

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// batch is the number of items in one message of a streamed list.
const batch = 1000

// list answers a question for a list, with the items that are to be sent.
func (s *Server) list(ctx context.Context, k kind, request any) ([]*item, error) {
	if filter := filterOf(request); filter != nil {
		return s.listFiltered(ctx, k, filter)
	}
	s.mu.Lock()
	if s.asked[k] || s.shownAt.IsZero() || time.Since(s.shownAt) > pairWithin {
		s.open()
	}
	s.asked[k] = true
	shown, how := s.shown.items[k], s.shown.how[k]
	last := s.isLast()
	s.mu.Unlock()
	if how == nil {
		how = &step{} // nothing was listed in the recording yet
	}
	if last {
		if how.pending {
			s.closed()
		} else {
			defer s.closed()
		}
	}
	if err := s.play(ctx, &how.outcome); err != nil {
		return nil, err
	}
	items := make([]*item, len(shown))
	for i, e := range shown {
		items[i] = e.item
	}
	return items, nil
}

// open begins a round: the one that is next in the recording if it is due or the
// first, or else the world as it is. It needs the lock.
func (s *Server) open() {
	now := s.now()
	at := now
	if r := s.nextRound(); r != nil {
		switch first := s.shownAt.IsZero(); {
		case first, s.followed && r.at <= now+s.scaled(slack):
			at = max(now, r.at)
		case !s.followed:
			at = min(now, r.at)
		}
	}
	s.advance(at)
	s.shown, s.shownAt, s.asked = s.world.snapshot(), time.Now(), [kinds]bool{}
}

// listFiltered answers with the items of a question that was asked at about this
// time, or with what of the world the filter shows.
func (s *Server) listFiltered(ctx context.Context, k kind, filter proto.Message) ([]*item, error) {
	key := filterKey(k, filter)
	s.mu.Lock()
	now := s.position()
	s.advance(now)
	how := s.world.filtered[key]
	for _, next := range s.recording.steps[s.next:] {
		if next.at > now+s.scaled(slack) {
			break
		}
		if next.key == key {
			how = next
			break
		}
	}
	var items []*item
	if how != nil && how.at > now {
		items = itemsOf(how, nil)
	} else {
		for _, e := range s.world.view[k] {
			if e.matches(filter) {
				items = append(items, e.item)
			}
		}
	}
	s.mu.Unlock()
	if how == nil {
		return items, nil
	}
	return items, s.play(ctx, &how.outcome)
}

func messages[M proto.Message](items []*item) []M {
	list := make([]M, len(items))
	for i, it := range items {
		list[i] = it.message.(M)
	}
	return list
}

// ListPodSandbox answers with the list of the time.
func (s *Server) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	items, err := s.list(ctx, sandboxes, r)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxResponse{Items: messages[*runtimeapi.PodSandbox](items)}, nil
}

// ListContainers answers with the list of the time.
func (s *Server) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	items, err := s.list(ctx, containers, r)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListContainersResponse{Containers: messages[*runtimeapi.Container](items)}, nil
}

// StreamPodSandboxes streams the list if the recorded runtime could.
func (s *Server) StreamPodSandboxes(
	r *runtimeapi.StreamPodSandboxesRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse],
) error {
	if !s.recording.streams {
		return errNoStreams
	}
	items, err := s.list(stream.Context(), sandboxes, r)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(messages[*runtimeapi.PodSandbox](items), batch) {
		if err := stream.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: some}); err != nil {
			return err
		}
	}
	return nil
}

// StreamContainers streams the list if the recorded runtime could.
func (s *Server) StreamContainers(
	r *runtimeapi.StreamContainersRequest, stream grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse],
) error {
	if !s.recording.streams {
		return errNoStreams
	}
	items, err := s.list(stream.Context(), containers, r)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(messages[*runtimeapi.Container](items), batch) {
		if err := stream.Send(&runtimeapi.StreamContainersResponse{Containers: some}); err != nil {
			return err
		}
	}
	return nil
}
