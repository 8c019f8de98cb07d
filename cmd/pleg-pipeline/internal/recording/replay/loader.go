package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/pleg-pipeline/pleg-pipeline/cmd/pleg-pipeline/internal/recording/format"
)

// maxItems bounds the memory that a few lines of a damaged file can take.
const maxItems = 100_000

// loader builds a recording from its lines.
type loader struct {
	recording *Recording
	ended     bool
	sizes     [format.Kinds]int // of the last list
	listed    [format.Kinds]time.Duration
	last      map[statusKey]proto.Message // the last status that was not "same"
	sessions  map[int]*session
	pending   map[string]*step // by call and time
}

func newLoader(h format.Header) *loader {
	return &loader{
		recording: &Recording{Header: h, statuses: make(map[statusKey][]*step)},
		last:      make(map[statusKey]proto.Message),
		sessions:  make(map[int]*session),
		pending:   make(map[string]*step),
	}
}

// line adds one line. It ignores calls that only a later program records.
func (l *loader) line(text []byte) error {
	var r format.Line
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	m := format.Methods[r.Call]
	s := &step{at: time.Duration(r.At), took: time.Duration(r.Took), pending: r.Pending, kind: m.Kind}
	l.recording.Length = max(l.recording.Length, s.at+s.took)
	if r.Error != nil {
		s.err = r.Error.Err()
	}
	key := fmt.Sprint(r.Call, r.ID, string(r.Filter), r.At)
	if before := l.pending[key]; before != nil && !r.Pending {
		before.dropped = true
		delete(l.pending, key)
	} else if r.Pending {
		l.pending[key] = s
	}
	switch {
	case r.End:
		l.ended, l.recording.Cut = true, ""
	case m.List:
		return l.list(s, &r)
	case m.Status:
		return l.status(s, &r)
	case r.Call == format.CallEvents:
		return l.event(s, &r)
	case r.Call == format.CallVersion:
		l.recording.version = s.took
	case r.Call == "":
		return errors.New("no call in it")
	}
	return nil
}

func (l *loader) list(s *step, r *format.Line) error {
	if streamed := format.IsStreamedList(r.Call); streamed && s.err != nil && r.Error.Code == format.Code(codes.Unimplemented) {
		return nil // the client called again without a stream
	} else if streamed {
		l.recording.streams = true
	}
	if len(r.Filter) > 0 {
		s.filter = format.Empty(format.Messages[s.kind].Filter)
		if err := parse(r.Filter, s.filter); err != nil {
			return err
		}
		s.key = filterKey(s.kind, s.filter)
	} else {
		// Lists refer to each other in the order of the file.
		s.at = max(s.at, l.listed[s.kind])
	}
	l.recording.steps = append(l.recording.steps, s)
	if s.err != nil || s.pending {
		return nil
	}
	if s.filter == nil {
		l.listed[s.kind] = s.at
	}
	return l.parts(s, r)
}

func (l *loader) parts(s *step, r *format.Line) error {
	if r.Same && s.filter == nil {
		s.same = true
		return nil
	}
	if r.List == nil {
		return errors.New("a list without items, same or an error")
	}
	size := 0
	for _, p := range r.List {
		part, err := l.part(s, p)
		if err != nil {
			return err
		}
		s.parts = append(s.parts, part)
		if size += part.number; size > maxItems {
			return fmt.Errorf("a list of more than %d items", maxItems)
		}
	}
	if s.filter == nil {
		l.sizes[s.kind] = size
	}
	return nil
}

func (l *loader) part(s *step, p format.Part) (listPart, error) {
	if p.Keep == nil {
		message := format.Empty(format.Messages[s.kind].Item)
		err := parse(p.Put, message)
		return listPart{number: 1, item: newItem(message)}, err
	}
	first, number := p.Keep[0], p.Keep[1]
	if size := l.sizes[s.kind]; s.filter != nil || first < 0 || number < 1 || first > size || number > size-first {
		return listPart{}, fmt.Errorf("keep [%d, %d] of a list of %d", first, number, size)
	}
	return listPart{first: first, number: number}, nil
}

func (l *loader) status(s *step, r *format.Line) error {
	key := statusKey{s.kind, r.ID}
	l.recording.statuses[key] = append(l.recording.statuses[key], s)
	switch {
	case s.pending || s.err != nil:
		return nil
	case r.Same && l.last[key] == nil:
		return fmt.Errorf("the same status of %s as before, and there is none", r.ID)
	case !r.Same:
		l.last[key] = format.Empty(format.Messages[s.kind].Status)
		if err := parse(r.Answer, l.last[key]); err != nil {
			return err
		}
	}
	s.status = l.last[key]
	return nil
}

func (l *loader) event(s *step, r *format.Line) error {
	in := l.sessions[r.Stream]
	if in == nil {
		in = &session{opened: s.at}
		l.sessions[r.Stream] = in
		l.recording.sessions = append(l.recording.sessions, in)
	}
	if r.Ended {
		in.end = s
		return nil
	} else if len(r.Answer) == 0 {
		return nil
	}
	s.event = &cri.ContainerEventResponse{}
	if err := parse(r.Answer, s.event); err != nil {
		return err
	}
	if n := len(in.events); n > 0 {
		s.at = max(s.at, in.events[n-1].at)
	}
	in.events = append(in.events, s)
	l.recording.steps = append(l.recording.steps, s)
	l.addEventStatuses(s)
	return nil
}

// addEventStatuses adds the statuses in an event: a client does not ask for them
// again.
func (l *loader) addEventStatuses(s *step) {
	add := func(k format.Kind, id string, answer proto.Message) {
		key := statusKey{k, id}
		l.recording.statuses[key] = append(l.recording.statuses[key], &step{at: s.at, status: answer, byEvent: true})
	}
	if sandbox := s.event.GetPodSandboxStatus(); sandbox.GetId() != "" {
		add(format.Sandboxes, sandbox.GetId(), &cri.PodSandboxStatusResponse{Status: sandbox})
	}
	for _, c := range s.event.GetContainersStatuses() {
		add(format.Containers, c.GetId(), &cri.ContainerStatusResponse{Status: c})
	}
}

// finish sorts everything by time.
func (l *loader) finish() *Recording {
	r := l.recording
	inOrder := func(steps []*step) []*step {
		steps = slices.DeleteFunc(steps, func(s *step) bool { return s.dropped })
		slices.SortStableFunc(steps, func(a, b *step) int { return cmp.Compare(a.at, b.at) })
		return steps
	}
	r.steps = inOrder(r.steps)
	for key, known := range r.statuses {
		r.statuses[key] = inOrder(known)
	}
	r.rounds = newRounds(r.steps)
	w := newWorld(r.Header.Began)
	for _, s := range r.steps {
		w.apply(s)
	}
	for k := range r.final {
		r.final[k] = make(map[string]bool)
		for _, e := range w.view[k] {
			r.final[k][e.id] = true
		}
	}
	return r
}

// parse reads protojson, also of a later CRI.
func parse(text []byte, into proto.Message) error {
	if len(text) == 0 {
		return errors.New("no answer in it")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}

// filterKey identifies a list with a filter.
func filterKey(k format.Kind, filter proto.Message) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(filter) // never fails: it was decoded before
	return fmt.Sprint(k, ":", string(text))
}
