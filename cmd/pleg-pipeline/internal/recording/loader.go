package recording

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// step is one recorded answer: of a list, of a status call, or an event.
type step struct {
	at, took time.Duration
	err      error // a gRPC status
	pending  bool  // it has no answer
	kind     kind
	pod      string  // the pod of a list with its label
	filtered bool    // the list has a filter
	items    []*item // of the list
	event    *cri.ContainerEventResponse
	ended    bool          // the end of an event stream
	answer   proto.Message // of a status call, or of the version
	state    int32         // in the answer
}

// question identifies a status call or a list with a filter: by the id or the filter.
type question struct {
	kind kind
	text string
}

func questionOf(k kind, request proto.Message) question {
	switch r := request.(type) {
	case *cri.PodSandboxStatusRequest:
		return question{k, r.GetPodSandboxId()}
	case *cri.ContainerStatusRequest:
		return question{k, r.GetContainerId()}
	}
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(request) // never fails: it was decoded before
	return question{k, "list " + string(text)}
}

// podOf returns the UID in a request for the list of one pod.
func podOf(request proto.Message) string {
	switch r := request.(type) {
	case *cri.ListPodSandboxRequest:
		return r.GetFilter().GetLabelSelector()[labelPodUID]
	case *cri.ListContainersRequest:
		return r.GetFilter().GetLabelSelector()[labelPodUID]
	}
	return ""
}

// loader builds a recording from its lines.
type loader struct {
	*Recording
	ended         bool
	fields, items int          // so far
	lists         [kinds]*step // the last ones that did not fail
	open          map[int]bool // event streams
}

func newLoader(h Header) *loader {
	return &loader{
		Recording: &Recording{
			Header: h, answers: make(map[question][]*step), version: &step{},
			Cut: "it has no end: the recorder was killed, or the file is not complete",
		},
		lists: [kinds]*step{{}, {}}, open: make(map[int]bool),
	}
}

// addLine adds one line. It ignores calls that only a later program records.
func (l *loader) addLine(text []byte) error {
	l.fields += bytes.Count(text, []byte(":")) + 3*bytes.Count(text, []byte("{"))
	l.items += bytes.Count(text, []byte(","))
	if l.fields > limits.fields || l.items > limits.items {
		return fmt.Errorf("%w: the limits are %d fields and %d items", ErrTooLarge, limits.fields, limits.items)
	}
	var r line
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	m, recorded := methods[r.Method]
	s := &step{at: time.Duration(r.At), took: time.Duration(r.Took), pending: r.Pending, kind: m.kind}
	l.Length = max(l.Length, s.at+s.took)
	switch {
	case r.End:
		l.ended, l.Cut = true, ""
		return nil
	case r.Method == "":
		return errors.New("no method in it")
	case !recorded:
		return nil
	}
	if r.Error != nil {
		var err error
		if s.err, err = r.Error.status(); err != nil {
			return err
		}
	}
	request := empty(m.request)
	if len(r.Request) > 0 {
		if err := parse(r.Request, request); err != nil {
			return err
		}
	}
	return l.addStep(s, m, &r, request)
}

func (l *loader) addStep(s *step, m method, r *line, request proto.Message) error {
	answered := s.err == nil && !s.pending
	switch {
	case m.shape == asksEvents:
		return l.addEvent(s, r)
	case m.isList():
		return l.addList(s, m, r, request)
	case answered:
		s.answer = empty(m.reply)
		if err := parse(r.Answer, s.answer); err != nil {
			return err
		}
		s.state = stateOf(s.answer)
	}
	if m.shape == asksVersion {
		l.version = s
		l.Runtime, _ = s.answer.(*cri.VersionResponse)
		return nil
	}
	l.addAnswer(questionOf(s.kind, request), s)
	if sandbox, ok := s.answer.(*cri.PodSandboxStatusResponse); ok {
		l.addContainers(s.at, sandbox.GetContainersStatuses())
	}
	return nil
}

func (l *loader) addAnswer(q question, s *step) { l.answers[q] = append(l.answers[q], s) }

// addContainers adds statuses of containers that came with that of their sandbox or with
// an event, so that no client asked for them.
func (l *loader) addContainers(at time.Duration, statuses []*cri.ContainerStatus) {
	for _, c := range statuses {
		l.addAnswer(question{containers, c.GetId()}, &step{
			at: at, kind: containers, answer: &cri.ContainerStatusResponse{Status: c}, state: int32(c.GetState()),
		})
	}
}

func (l *loader) addList(s *step, m method, r *line, request proto.Message) error {
	if m.shape == asksStreamedList && status.Code(s.err) == codes.Unimplemented {
		return nil // the client called again without a stream
	}
	l.streams = l.streams || m.shape == asksStreamedList
	last := &step{} // nothing to refer to
	if s.filtered = len(r.Request) > 0; s.filtered {
		s.pod = podOf(request)
		l.addAnswer(questionOf(s.kind, request), s)
	} else {
		last = l.lists[s.kind]
		s.at = max(s.at, last.at) // lists refer to each other in the order of the file
	}
	l.steps = append(l.steps, s)
	switch {
	case s.err != nil || s.pending:
		return nil
	case r.Same:
		s.items = last.items
	case r.List == nil:
		return errors.New("a list without items, same or an error")
	}
	for _, text := range r.List {
		it, err := parseItem(s.kind, text, last.items)
		if err != nil {
			return err
		}
		s.items = append(s.items, it)
	}
	if !s.filtered {
		l.lists[s.kind] = s
	}
	return nil
}

// parseItem parses an item of a list, or its index in the last list.
func parseItem(k kind, text []byte, last []*item) (*item, error) {
	if len(text) == 0 || text[0] == '{' {
		message := newListed(k)
		if err := parse(text, message); err != nil {
			return nil, err
		}
		return newItem(message), nil
	}
	i, err := strconv.Atoi(string(text))
	if err != nil || i < 0 || i >= len(last) {
		return nil, fmt.Errorf("item %.20s of a list of %d", text, len(last))
	}
	return last[i], nil
}

func (l *loader) addEvent(s *step, r *line) error {
	l.open[r.Stream] = !r.Ended
	if s.ended = r.Ended; s.ended {
		l.stream = append(l.stream, s)
	}
	if r.Ended || len(r.Answer) == 0 {
		return nil
	}
	s.event = &cri.ContainerEventResponse{}
	if err := parse(r.Answer, s.event); err != nil {
		return err
	}
	l.stream, l.steps = append(l.stream, s), append(l.steps, s)
	if sandbox := s.event.GetPodSandboxStatus(); sandbox.GetId() != "" {
		answer := &cri.PodSandboxStatusResponse{Status: sandbox}
		l.addAnswer(question{sandboxes, sandbox.GetId()}, &step{at: s.at, answer: answer, state: stateOf(answer)})
	}
	l.addContainers(s.at, s.event.GetContainersStatuses())
	return nil
}

// finish sorts everything by time.
func (l *loader) finish() *Recording {
	sortByTime := func(steps []*step) {
		slices.SortStableFunc(steps, func(a, b *step) int { return cmp.Compare(a.at, b.at) })
	}
	sortByTime(l.steps)
	for _, answers := range l.answers {
		sortByTime(answers)
	}
	if slices.Contains(slices.Collect(maps.Values(l.open)), true) {
		l.stream = append(l.stream, &step{at: l.Length, ended: true, err: errStreamEnd})
	}
	sortByTime(l.stream)
	l.rounds = newRounds(l.steps)
	return l.Recording
}

// parse reads protojson, also of a later CRI.
func parse(text []byte, into proto.Message) error {
	if len(text) == 0 {
		return errors.New("no answer in it")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}
