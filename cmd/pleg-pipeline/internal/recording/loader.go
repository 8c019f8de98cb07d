package recording

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// played is one recorded answer, or one message of an event stream.
type played struct {
	at, took time.Duration
	message  proto.Message // nil if there is none; shared by equal lists
	err      error         // a gRPC status
	pending  bool          // it has no answer
	ended    bool          // the end of an event stream
}

// round is the lists of sandboxes and of containers that a client had from a time on.
type round struct {
	at    time.Duration
	lists [2]*played // by kind; nil before the first
}

// loader builds a recording from its lines.
type loader struct {
	*Recording
	ended         bool
	fields, items int // so far
	first         offset
	lists         map[string]proto.Message // the last ones that did not fail
}

func newLoader(h Header) *loader {
	return &loader{
		Recording: &Recording{
			Header: h, answers: make(map[string][]*played),
			Cut: "it has no end: the recorder was killed, or the file is not complete",
		},
		first: -1, lists: make(map[string]proto.Message),
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
	if l.first < 0 { // a Window may have forgotten what was before
		l.first = r.At
		l.Header.Began = l.Header.Began.Add(time.Duration(r.At))
	}
	p := &played{at: time.Duration(max(0, r.At-l.first)), took: time.Duration(r.Took), pending: r.Pending, ended: r.Ended}
	l.Length = max(l.Length, p.at+p.took)
	m, recorded := methods[r.Method]
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
		if p.err, err = r.Error.status(); err != nil {
			return err
		}
	}
	request := empty(m.request)
	if len(r.Request) > 0 {
		if err := parse(r.Request, request); err != nil {
			return err
		}
	}
	if m.list != r.Method && m.list != "" && status.Code(p.err) == codes.Unimplemented {
		return nil // the client called again without a stream
	}
	return l.add(p, m, &r, question(r.Method, request))
}

// add adds an answer with its message.
func (l *loader) add(p *played, m method, r *line, q string) (err error) {
	opened := r.Method == callEvents && len(r.Answer) == 0
	switch {
	case p.err != nil || p.pending || p.ended || opened:
	case m.list != "":
		p.message, err = l.list(methods[m.list].reply, r, q)
	default:
		p.message = empty(m.reply)
		err = parse(r.Answer, p.message)
	}
	if err != nil {
		return err
	}
	if r.Method == callEvents {
		l.stream = append(l.stream, p)
	} else {
		l.answers[q] = append(l.answers[q], p)
	}
	if version, ok := p.message.(*cri.VersionResponse); ok {
		l.Runtime = version
	}
	for _, x := range statusesIn(p.message) {
		q := question(x.method, x.request)
		l.answers[q] = append(l.answers[q], &played{at: p.at, message: x.reply})
	}
	return nil
}

// list returns a list of this type with its items.
func (l *loader) list(of proto.Message, r *line, q string) (proto.Message, error) {
	last := l.lists[q] // nil of a list with a filter
	switch {
	case r.Same && last != nil:
		return last, nil
	case r.List == nil:
		return nil, errors.New("a list without items, same or an error")
	}
	list := empty(of)
	items := itemsOf(list)
	for _, text := range r.List {
		if len(text) > 0 && text[0] != '{' {
			i, err := strconv.Atoi(string(text))
			if err != nil || last == nil || i < 0 || i >= itemsOf(last).Len() {
				return nil, fmt.Errorf("item %.20s is not in the list before", text)
			}
			items.Append(itemsOf(last).Get(i))
			continue
		}
		item := items.NewElement()
		if err := parse(text, item.Message().Interface()); err != nil {
			return nil, err
		}
		items.Append(item)
	}
	if _, full := kinds[q]; full {
		l.lists[q] = list
	}
	return list, nil
}

// finish sorts everything by time.
func (l *loader) finish() *Recording {
	byTime := func(a, b *played) int { return cmp.Compare(a.at, b.at) }
	for _, answers := range l.answers {
		slices.SortStableFunc(answers, byTime)
	}
	slices.SortStableFunc(l.stream, byTime)
	l.rounds = newRounds(l.answers)
	return l.Recording
}

// newRounds returns the rounds in which a list is not the same as before. Lists are of one
// round if one was made before the other had ended.
func newRounds(answers map[string][]*played) (rounds []round) {
	type list struct {
		*played
		kind int
	}
	var all []list
	for q, kind := range kinds {
		for _, p := range answers[q] {
			all = append(all, list{p, kind})
		}
	}
	slices.SortFunc(all, func(a, b list) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)) })
	var now round
	var has [2]bool // lists of the present round
	var end time.Duration
	var differs bool
	for _, p := range all {
		if has[p.kind] || p.at > end {
			if differs {
				rounds = append(rounds, now)
			}
			now.at, has, end, differs = p.at, [2]bool{}, 0, false
		}
		differs = differs || p.differs(now.lists[p.kind])
		now.lists[p.kind], has[p.kind], end = p.played, true, max(end, p.at+p.took)
	}
	if differs {
		rounds = append(rounds, now)
	}
	return rounds
}

// differs reports whether a list is not the same as the one before, which may be nil.
func (p *played) differs(last *played) bool {
	if last != nil && p.err != nil && last.err != nil {
		return p.err.Error() != last.err.Error()
	}
	return last == nil || p.pending || last.pending || p.err != nil || last.err != nil || p.message != last.message
}

// parse reads protojson, also of a later CRI.
func parse(text []byte, into proto.Message) error {
	if len(text) == 0 {
		return errors.New("no answer in it")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}
