package recording

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// maxItems is the greatest number of items in one list.
const maxItems = 100_000

// inCarried is how many listed items take as much memory as a status that came with another
// answer.
const inCarried = 64

// loader builds a recording from its lines.
type loader struct {
	*Recording
	budget  *budget
	ended   bool
	lists   [kinds]*step                // the last ones that did not fail
	last    map[statusKey]proto.Message // the last status that was not "same"
	opened  map[int]*session
	waiting map[string]*step // pending calls, by call and time
}

func newLoader(h Header, limits *budget) *loader {
	return &loader{
		budget: limits,
		Recording: &Recording{
			Header: h, statuses: make(map[statusKey][]*step),
			Cut: "it has no end: the recorder was killed, or the file is not complete",
		},
		lists: [kinds]*step{{}, {}}, last: make(map[statusKey]proto.Message),
		opened: make(map[int]*session), waiting: make(map[string]*step),
	}
}

// line adds one line. It ignores calls that only a later program records.
func (l *loader) line(text []byte) error {
	if !l.budget.useText(text) {
		return nil
	}
	var r line
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	m := methods[r.Call]
	s := &step{at: time.Duration(r.At), took: time.Duration(r.Took), pending: r.Pending, kind: m.kind}
	l.Length = max(l.Length, s.at+s.took)
	if r.Error != nil {
		var err error
		if s.err, err = r.Error.status(); err != nil {
			return err
		}
	}
	key := fmt.Sprint(r.Call, r.ID, string(r.Filter), r.At)
	if before := l.waiting[key]; before != nil && !r.Pending {
		before.dropped = true
		delete(l.waiting, key)
	} else if r.Pending {
		l.waiting[key] = s
	}
	switch {
	case r.End:
		l.ended, l.Cut = true, ""
	case m.list:
		return l.list(s, &r, m)
	case m.status:
		return l.status(s, &r)
	case r.Call == callEvents:
		return l.event(s, &r)
	case r.Call == callVersion:
		l.version = s.took
	case r.Call == "":
		return errors.New("no call in it")
	}
	return nil
}

func (l *loader) list(s *step, r *line, m method) error {
	if m.streamed && status.Code(s.err) == codes.Unimplemented {
		return nil // the client called again without a stream
	}
	l.streams = l.streams || m.streamed
	last := l.lists[s.kind]
	if len(r.Filter) > 0 {
		s.filter = empty(messages[s.kind].filter)
		if err := parse(r.Filter, s.filter); err != nil {
			return err
		}
		s.key = filterKey(s.kind, s.filter)
		last = &step{} // nothing to refer to
	} else {
		// Lists refer to each other in the order of the file.
		s.at = max(s.at, last.at)
	}
	l.steps = append(l.steps, s)
	switch {
	case s.err != nil || s.pending:
		return nil
	case s.filter == nil:
		l.lists[s.kind] = s
	}
	if r.Same && s.filter == nil {
		s.same, s.items = true, last.items
		return nil
	}
	return l.addItems(s, r.List, last.items)
}

// addItems adds the items of a list, given the list before.
func (l *loader) addItems(s *step, parts []part, last []*item) error {
	if parts == nil {
		return errors.New("a list without items, same or an error")
	}
	if !l.budget.use(inListed, len(parts)) {
		return nil
	}
	s.items = make([]*item, 0, len(parts))
	for _, p := range parts {
		if p.Keep == nil {
			message := empty(messages[s.kind].item)
			if err := parse(p.Put, message); err != nil {
				return err
			}
			s.items = append(s.items, newItem(message))
			continue
		}
		first, number := p.Keep[0], p.Keep[1]
		if first < 0 || number < 1 || first > len(last) || number > len(last)-first {
			return fmt.Errorf("keep [%d, %d] of a list of %d", first, number, len(last))
		}
		if !l.budget.use(inListed, number) {
			return nil
		}
		s.items = append(s.items, last[first:first+number]...)
		if len(s.items) > maxItems {
			return fmt.Errorf("a list of more than %d items", maxItems)
		}
	}
	return nil
}

func (l *loader) status(s *step, r *line) error {
	key := statusKey{s.kind, r.ID}
	l.statuses[key] = append(l.statuses[key], s)
	switch {
	case s.pending || s.err != nil:
		return nil
	case r.Same && l.last[key] == nil:
		return fmt.Errorf("the same status of %s as before, and there is none", r.ID)
	case !r.Same:
		l.last[key] = empty(messages[s.kind].status)
		if err := parse(r.Answer, l.last[key]); err != nil {
			return err
		}
	}
	s.status = l.last[key]
	if sandbox, ok := s.status.(*cri.PodSandboxStatusResponse); ok && !r.Same {
		l.carried(s.at, sandbox.GetContainersStatuses())
	}
	return nil
}

// carried notes statuses of containers that came with that of their sandbox or with an event,
// so that no client asked for them.
func (l *loader) carried(at time.Duration, statuses []*cri.ContainerStatus) {
	if !l.budget.use(inListed, inCarried*len(statuses)) {
		return
	}
	for _, c := range statuses {
		l.carry(at, statusKey{containers, c.GetId()}, &cri.ContainerStatusResponse{Status: c})
	}
}

func (l *loader) carry(at time.Duration, key statusKey, answer proto.Message) {
	l.statuses[key] = append(l.statuses[key], &step{at: at, status: answer, carried: true})
}

func (l *loader) event(s *step, r *line) error {
	in := l.opened[r.Stream]
	if in == nil {
		in = &session{opened: s.at}
		l.opened[r.Stream] = in
		l.sessions = append(l.sessions, in)
	}
	if r.Ended {
		in.end = s
	}
	if r.Ended || len(r.Answer) == 0 {
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
	l.steps = append(l.steps, s)
	if sandbox := s.event.GetPodSandboxStatus(); sandbox.GetId() != "" {
		l.carry(s.at, statusKey{sandboxes, sandbox.GetId()}, &cri.PodSandboxStatusResponse{Status: sandbox})
	}
	l.carried(s.at, s.event.GetContainersStatuses())
	return nil
}

// finish sorts everything by time.
func (l *loader) finish() *Recording {
	inOrder := func(steps []*step) []*step {
		steps = slices.DeleteFunc(steps, func(s *step) bool { return s.dropped })
		slices.SortStableFunc(steps, func(a, b *step) int { return cmp.Compare(a.at, b.at) })
		return steps
	}
	l.steps = inOrder(l.steps)
	for key, known := range l.statuses {
		l.statuses[key] = inOrder(known)
	}
	for _, in := range l.sessions {
		if in.end == nil {
			in.end = &step{at: l.Length, err: errSessionEnd}
		}
	}
	l.rounds = newRounds(l.steps)
	w := newWorld(l.Header.Began)
	for _, s := range l.steps {
		if !l.budget.use(inWork, w.cost(s)) {
			break
		}
		w.apply(s)
	}
	l.final = w.known
	return l.Recording
}

// parse reads protojson, also of a later CRI.
func parse(text []byte, into proto.Message) error {
	if len(text) == 0 {
		return errors.New("no answer in it")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}

// filterKey identifies a list with a filter.
func filterKey(k kind, filter proto.Message) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(filter) // never fails: it was decoded before
	return fmt.Sprint(k, ":", string(text))
}
