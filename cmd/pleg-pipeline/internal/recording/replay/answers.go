package replay

import (
	"context"
	"sort"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording/format"
)

// streamBatch is the number of items in one message of a streamed list.
const streamBatch = 1000

// list returns the messages of a list: one, or several if it is streamed.
func (s *Server) list(ctx context.Context, call string, request proto.Message) ([]proto.Message, error) {
	m := format.Methods[call]
	entries, err := s.entries(ctx, m.Kind, format.FilterOf(request))
	if err != nil {
		return nil, err
	}
	var answers []proto.Message
	for i, e := range entries {
		if i == 0 || i%streamBatch == 0 && format.IsStreamedList(call) {
			answers = append(answers, m.NewReply())
		}
		format.ItemsOf(answers[len(answers)-1]).Append(protoreflect.ValueOfMessage(e.message.ProtoReflect()))
	}
	if len(answers) == 0 && !format.IsStreamedList(call) {
		answers = append(answers, m.NewReply())
	}
	return answers, nil
}

func (s *Server) entries(ctx context.Context, k format.Kind, filter proto.Message) ([]*entry, error) {
	if filter != nil {
		return s.filtered(ctx, k, filter)
	}
	s.mu.Lock()
	if s.asked[k] || s.shownAt.IsZero() || time.Since(s.shownAt) > pairWithin {
		s.openRound()
	}
	s.asked[k] = true
	shown, how := s.shown[k], s.how[k]
	last := s.nextRound() == nil && s.next == len(s.recording.steps) && s.now() >= s.recording.Length
	s.mu.Unlock()
	if how == nil {
		how = &step{}
	}
	switch {
	case last && how.pending:
		s.noteLastList()
	case last:
		defer s.noteLastList()
	}
	return shown, s.play(ctx, how)
}

// noteLastList notes that a list from after the end was answered, or that it hangs
// as recorded.
func (s *Server) noteLastList() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastList.IsZero() {
		s.lastList = time.Now()
	}
}

// openRound begins a round: the next one of the recording if it is due or the
// first, or else the world as it is. The caller holds the lock.
func (s *Server) openRound() {
	now := s.now()
	at := now
	if r := s.nextRound(); r != nil {
		switch first := s.shownAt.IsZero(); {
		case first, s.byEvents && r.at <= now+s.scaled(slack):
			at = max(now, r.at)
		case !s.byEvents:
			at = min(now, r.at)
		}
	}
	s.advance(at)
	s.shown, s.how, s.shownAt, s.asked = s.world.view, s.world.last, time.Now(), [format.Kinds]bool{}
}

// filtered answers with the list of this filter that was made at about this time,
// or with the items of the world that match.
func (s *Server) filtered(ctx context.Context, k format.Kind, filter proto.Message) (found []*entry, err error) {
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
	if how != nil && how.at > now {
		for _, it := range how.items(nil) {
			found = append(found, &entry{item: it})
		}
	} else {
		for _, e := range s.world.view[k] {
			if e.matches(filter) {
				found = append(found, e)
			}
		}
	}
	s.mu.Unlock()
	if how == nil {
		return found, nil
	}
	return found, s.play(ctx, how)
}

func (s *Server) status(ctx context.Context, k format.Kind, id string) ([]proto.Message, error) {
	s.mu.Lock()
	s.advance(s.position())
	found := s.chooseStatus(k, id)
	missing := found == nil && s.recording.final[k][id]
	if missing {
		s.missing[id] = true
	}
	s.mu.Unlock()
	switch {
	case missing:
		return nil, hang(ctx)
	case found == nil:
		return nil, status.Errorf(codes.NotFound, "the recording has no status of %s", id)
	}
	if err := s.play(ctx, found); err != nil {
		return nil, err
	}
	return []proto.Message{found.status}, nil
}

// chooseStatus returns the recorded answer, or nil if there is none. An answer from
// before the item's state was first seen does not count, unless it has that state.
// The caller holds the lock.
func (s *Server) chooseStatus(k format.Kind, id string) *step {
	answers := s.recording.statuses[statusKey{k, id}]
	var e *entry
	var since time.Duration
	if i := s.world.index(k, id); i >= 0 {
		e = s.world.view[k][i]
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
	last := sort.Search(len(answers), func(i int) bool { return answers[i].at > now }) - 1
	if last >= 0 && answers[last].at >= since {
		return answers[last]
	}
	if next := sort.Search(len(answers), func(i int) bool { return answers[i].at >= since }); next < len(answers) {
		return answers[next]
	}
	if last >= 0 && (e == nil || answers[last].status == nil || stateOf(format.Field(answers[last].status, "status").Message().Interface()) == e.state) {
		return answers[last]
	}
	return nil
}

// firstNotGiven returns the first answer of about this time that has not been
// given, or nil. With events a pipeline makes the same calls at the same times. The
// caller holds the lock.
func (s *Server) firstNotGiven(answers []*step, since, now time.Duration) *step {
	from := max(since, now-s.scaled(slack))
	for _, a := range answers[sort.Search(len(answers), func(i int) bool { return answers[i].at >= from }):] {
		if a.at > now+s.scaled(slack) {
			return nil
		}
		if !a.byEvent && !s.given[a] {
			return a
		}
	}
	return nil
}
