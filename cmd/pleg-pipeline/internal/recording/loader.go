package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxItems bounds the memory that a few lines of a damaged file can take.
const maxItems = 100_000

// outcome is how a call ended.
type outcome struct {
	took time.Duration
	err  error // a gRPC status
	// pending is that it had no answer yet, dropped that it got one later.
	pending, dropped bool
}

// step is something that says what exists: a list of everything, one with a
// filter, or an event.
type step struct {
	outcome
	at     time.Duration
	kind   kind
	filter proto.Message // nil for a list of everything, and for an event
	key    string        // stands for kind and filter; empty without a filter
	same   bool          // as the last list
	parts  []listPart
	event  *runtimeapi.ContainerEventResponse
}

func (s *step) isList() bool { return s.event == nil && s.filter == nil }

// listPart is a range of the last list, or one item if it is not nil.
type listPart struct {
	first, number int
	item          *item
}

// statusAnswer is an answer to the question for a status.
type statusAnswer struct {
	outcome
	at     time.Duration
	answer proto.Message // of the kind's status response
	told   bool          // by an event, not asked for
}

// session is a stream of events.
type session struct {
	opened time.Duration
	events []*step
	ended  bool
	outcome
	end time.Duration
}

// loader builds a recording from its lines.
type loader struct {
	recording *Recording
	sizes     [kinds]int // of the last list
	listed    [kinds]time.Duration
	last      map[statusKey]*statusAnswer // the last that was not "same"
	sessions  map[int]*session
	pending   map[callKey]*outcome
}

type callKey struct {
	call, id, filter string
	at               time.Duration
}

func newLoader(h Header) *loader {
	return &loader{
		recording: &Recording{Header: h, statuses: make(map[statusKey][]*statusAnswer)},
		last:      make(map[statusKey]*statusAnswer),
		sessions:  make(map[int]*session),
		pending:   make(map[callKey]*outcome),
	}
}

// line takes in one line and reports whether it is the end.
func (l *loader) line(text []byte) (end bool, err error) {
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return false, err
	}
	l.recording.Length = max(l.recording.Length, time.Duration(r.At)+time.Duration(r.Took))
	if r.End {
		l.recording.Length = max(time.Duration(r.At), l.recording.Length)
		return true, nil
	}
	o := outcome{took: time.Duration(r.Took), pending: r.Pending}
	if r.Error != nil {
		o.err = r.Error.err()
	}
	if waits := l.pending[keyOf(&r)]; waits != nil && !r.Pending {
		waits.dropped = true
		delete(l.pending, keyOf(&r))
	}
	if k, ok := listKind(r.Call); ok {
		return false, l.list(k, &r, o)
	}
	if k, ok := statusKind(r.Call); ok {
		return false, l.status(k, &r, o)
	}
	switch r.Call {
	case callEvents:
		return false, l.event(&r, o)
	case callVersion:
		l.recording.version = o.took
	case "":
		return false, errors.New("no call in it")
	}
	return false, nil // a call that a later program may record
}

func keyOf(r *record) callKey {
	return callKey{r.Call, r.ID, string(r.Filter), time.Duration(r.At)}
}

func (l *loader) list(k kind, r *record, o outcome) error {
	streamed := r.Call == callStreamSandboxes || r.Call == callStreamContainers
	if streamed && o.err != nil && r.Error.Code == code(codes.Unimplemented) {
		return nil // it was asked for again with a call
	}
	l.recording.streams = l.recording.streams || streamed
	s := &step{outcome: o, at: time.Duration(r.At), kind: k}
	if len(r.Filter) > 0 {
		s.filter = k.newFilter()
		if err := parse(r.Filter, s.filter); err != nil {
			return err
		}
		s.key = filterKey(k, s.filter)
	} else {
		// The lists of a kind tell of each other in the order of the file.
		s.at = max(s.at, l.listed[k])
	}
	if o.err == nil && !o.pending {
		if err := l.parts(s, r); err != nil {
			return err
		}
		if s.filter == nil {
			l.listed[k] = s.at
		}
	}
	if o.pending {
		l.pending[keyOf(r)] = &s.outcome
	}
	l.recording.steps = append(l.recording.steps, s)
	return nil
}

func (l *loader) parts(s *step, r *record) error {
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

func (l *loader) part(s *step, p part) (listPart, error) {
	if p.Keep == nil {
		message := s.kind.newItem()
		err := parse(p.Put, message)
		return listPart{number: 1, item: newItem(message)}, err
	}
	first, number := p.Keep[0], p.Keep[1]
	if size := l.sizes[s.kind]; s.filter != nil || first < 0 || number < 1 || first > size || number > size-first {
		return listPart{}, fmt.Errorf("keep [%d, %d] of a list of %d", first, number, size)
	}
	return listPart{first: first, number: number}, nil
}

func (l *loader) status(k kind, r *record, o outcome) error {
	key := statusKey{k, r.ID}
	s := &statusAnswer{outcome: o, at: time.Duration(r.At)}
	switch last := l.last[key]; {
	case o.pending:
		l.pending[keyOf(r)] = &s.outcome
	case o.err != nil:
	case r.Same && last == nil:
		return fmt.Errorf("the same status of %s as before, and there is none", r.ID)
	case r.Same:
		s.answer = last.answer
	default:
		s.answer = k.newStatus()
		if err := parse(r.Answer, s.answer); err != nil {
			return err
		}
		l.last[key] = s
	}
	l.recording.statuses[key] = append(l.recording.statuses[key], s)
	return nil
}

func (l *loader) event(r *record, o outcome) error {
	s := l.sessions[r.Stream]
	if s == nil {
		s = &session{opened: time.Duration(r.At)}
		l.sessions[r.Stream] = s
		l.recording.sessions = append(l.recording.sessions, s)
	}
	switch {
	case r.Ended:
		s.ended, s.end, s.outcome = true, time.Duration(r.At), o
	case len(r.Answer) > 0:
		event := &runtimeapi.ContainerEventResponse{}
		if err := parse(r.Answer, event); err != nil {
			return err
		}
		at := &step{at: time.Duration(r.At), event: event}
		if n := len(s.events); n > 0 {
			at.at = max(at.at, s.events[n-1].at)
		}
		s.events = append(s.events, at)
		l.recording.steps = append(l.recording.steps, at)
		l.eventStatuses(at)
	}
	return nil
}

// eventStatuses keeps what an event says of its pod: whoever has it does not ask
// again.
func (l *loader) eventStatuses(s *step) {
	add := func(k kind, id string, answer proto.Message) {
		key := statusKey{k, id}
		l.recording.statuses[key] = append(l.recording.statuses[key], &statusAnswer{at: s.at, answer: answer, told: true})
	}
	if sandbox := s.event.GetPodSandboxStatus(); sandbox.GetId() != "" {
		add(sandboxes, sandbox.GetId(), &runtimeapi.PodSandboxStatusResponse{Status: sandbox})
	}
	for _, c := range s.event.GetContainersStatuses() {
		add(containers, c.GetId(), &runtimeapi.ContainerStatusResponse{Status: c})
	}
}

// parse reads protojson, of a later CRI too.
func parse(text []byte, into proto.Message) error {
	if len(text) == 0 {
		return errors.New("no answer in it")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}

// filterKey stands for a question with a filter.
func filterKey(k kind, filter proto.Message) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(filter) // was parsed, or came over the wire
	return fmt.Sprint(k, ":", string(text))
}
