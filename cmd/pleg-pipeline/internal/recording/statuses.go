package recording

import (
	"context"
	"sort"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus answers as at the time.
func (s *Server) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	answer, err := s.status(ctx, sandboxes, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return answer.(*runtimeapi.PodSandboxStatusResponse), nil
}

// ContainerStatus answers as at the time.
func (s *Server) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	answer, err := s.status(ctx, containers, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	return answer.(*runtimeapi.ContainerStatusResponse), nil
}

func (s *Server) status(ctx context.Context, k kind, id string) (proto.Message, error) {
	s.mu.Lock()
	s.advance(s.position())
	found := s.choose(k, id)
	lost := found == nil && s.recording.final[k][id]
	if lost {
		s.missing[id] = true
	}
	s.mu.Unlock()
	switch {
	case lost:
		return nil, s.hang(ctx)
	case found == nil:
		return nil, status.Errorf(codes.NotFound, "the recording has no status of %s", id)
	}
	if err := s.play(ctx, &found.outcome); err != nil {
		return nil, err
	}
	return found.answer, nil
}

// choose returns the answer to a question for a status, or nil if the recording
// does not have it. One from before the item's present state was listed is none,
// unless it tells of that state already. It needs the lock.
func (s *Server) choose(k kind, id string) *statusAnswer {
	answers := s.recording.statuses[statusKey{k, id}]
	e := s.world.find(k, id)
	var since time.Duration
	if e != nil {
		since = e.changed
	}
	now := s.position()
	if s.followed {
		if turn := s.turn(answers, since, now); turn != nil {
			return turn
		}
	} else {
		// Whatever was asked for between two lists answers the first.
		now += s.scaled(slack)
		if next := s.nextRound(); next != nil {
			now = min(now, next.at)
		}
	}
	last := sort.Search(len(answers), func(i int) bool { return answers[i].at > now }) - 1
	if last >= 0 && answers[last].at >= since {
		return answers[last]
	}
	if next := sort.Search(len(answers), func(i int) bool { return answers[i].at >= since }); next < len(answers) {
		return answers[next]
	}
	if last >= 0 && (e == nil || answers[last].answer == nil || stateOf(answers[last].answer) == e.state) {
		return answers[last]
	}
	return nil
}

// turn returns the answer that was asked for at about this time and has not been
// given yet, or nil. Events make a pipeline ask at their times, so that each call
// has its counterpart. It needs the lock.
func (s *Server) turn(answers []*statusAnswer, since, now time.Duration) *statusAnswer {
	from := max(since, now-s.scaled(slack))
	for _, a := range answers[sort.Search(len(answers), func(i int) bool { return answers[i].at >= from }):] {
		if a.at > now+s.scaled(slack) {
			return nil
		}
		if !a.told && !s.heard[&a.outcome] {
			return a
		}
	}
	return nil
}

func stateOf(answer proto.Message) int32 {
	switch answer := answer.(type) {
	case *runtimeapi.PodSandboxStatusResponse:
		return int32(answer.GetStatus().GetState())
	case *runtimeapi.ContainerStatusResponse:
		return int32(answer.GetStatus().GetState())
	}
	return -1
}
