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

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// round contains the lists of sandboxes and of containers that a client received last before a
// time.
type round struct {
	at    time.Duration
	lists [2]*call // by kind; nil before the first
}

type loader struct {
	*Recording
	ended  bool
	memory int // taken so far
	first  offset
	lists  map[string]proto.Message // the last lists that did not fail
}

func newLoader(h Header) *loader {
	return &loader{
		Recording: &Recording{
			Header: h, answers: make(map[string][]*call),
			Cut: "it has no end: the recorder was killed, or the file is not complete",
		},
		first: -1, lists: make(map[string]proto.Message),
	}
}

func (l *loader) addLine(text []byte) error {
	count := func(of string) int { return bytes.Count(text, []byte(of)) }
	if err := l.takes(len(text) + messageCost*count("{") + fieldCost*count(":") + itemCost*count(",")); err != nil {
		return err
	}
	var r line
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	if l.first < 0 { // there may have been no call for a while
		l.first = r.At
		l.Header.Began = l.Header.Began.Add(time.Duration(r.At))
	}
	c := &call{at: time.Duration(max(0, r.At-l.first)), took: time.Duration(r.Took), method: r.Method, pending: r.Pending}
	l.Length = max(l.Length, c.at+c.took)
	m, recorded := methods[r.Method]
	switch {
	case l.ended:
		return errors.New("it is after the end")
	case r.End:
		l.ended, l.Cut = true, ""
		return nil
	case r.Node != nil:
		return l.addNode(c.at, r.Node)
	case !recorded:
		return fmt.Errorf("unknown method %q", r.Method)
	}
	var err error
	if r.Error != nil {
		if c.err, err = r.Error.status(); err != nil {
			return err
		}
	}
	if c.request = empty(m.request); len(r.Request) > 0 {
		if err := parse(r.Request, c.request); err != nil {
			return err
		}
	}
	_, isList := kinds[c.method]
	switch {
	case c.err != nil || c.pending:
	case isList:
		c.reply, err = l.list(m.reply, &r, question(c.method, c.request))
	default:
		c.reply = empty(m.reply)
		err = parse(r.Answer, c.reply)
	}
	if status, ok := c.reply.(*cri.PodSandboxStatusResponse); ok && err == nil {
		err = l.takes(carriedCost * len(status.GetContainersStatuses()))
	}
	if err == nil {
		l.add(c)
	}
	return err
}

// takes counts added memory. It returns an error if the total is too large.
func (l *loader) takes(bytes int) error {
	if l.memory += bytes; l.memory > limits.memory {
		return fmt.Errorf("the recording is too large: it would take more than %d bytes of memory", limits.memory)
	}
	return nil
}

// add adds a call, and the statuses of containers in the answer as answers to calls that the
// client did not need.
func (l *loader) add(c *call) {
	q := question(c.method, c.request)
	l.answers[q] = append(l.answers[q], c)
	if kind, isList := kinds[c.method]; isList && c.reply != nil && podOf(c.request) != "" {
		l.singles[kind] = append(l.singles[kind], c)
	}
	switch reply := c.reply.(type) {
	case *cri.VersionResponse:
		l.Runtime = reply
	case *cri.PodSandboxStatusResponse:
		for _, s := range reply.GetContainersStatuses() {
			request := &cri.ContainerStatusRequest{ContainerId: s.GetId()}
			l.add(&call{at: c.at, method: containerStatus, request: request, reply: &cri.ContainerStatusResponse{Status: s}})
		}
	}
}

func (l *loader) list(of proto.Message, r *line, q string) (proto.Message, error) {
	last := l.lists[q] // nil for a list with a filter
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
				return nil, fmt.Errorf("item %.20s is not in the previous list", text)
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
	for _, calls := range slices.AppendSeq(l.singles[:], maps.Values(l.answers)) {
		slices.SortStableFunc(calls, func(a, b *call) int { return cmp.Compare(a.at, b.at) })
	}
	l.rounds = newRounds(l.answers)
	return l.Recording
}

// newRounds returns the rounds in which a list is not the same as before. Two lists are of one
// round if the second was made before the first had ended.
func newRounds(answers map[string][]*call) (rounds []round) {
	var all []*call
	for q := range kinds {
		all = append(all, answers[q]...)
	}
	slices.SortFunc(all, func(a, b *call) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.method, b.method)) })
	var now round
	var has [2]bool // lists of the present round
	var end time.Duration
	var differs bool
	for _, c := range all {
		kind := kinds[c.method]
		if has[kind] || c.at > end {
			if differs {
				rounds = append(rounds, now)
			}
			now.at, has, end, differs = c.at, [2]bool{}, 0, false
		}
		differs = differs || c.differs(now.lists[kind])
		now.lists[kind], has[kind], end = c, true, max(end, c.at+c.took)
	}
	if differs {
		rounds = append(rounds, now)
	}
	return rounds
}

// differs reports whether a list differs from the previous list, which may be nil.
func (c *call) differs(last *call) bool {
	if last != nil && c.err != nil && last.err != nil {
		return c.err.Error() != last.err.Error()
	}
	return last == nil || c.pending || last.pending || c.err != nil || last.err != nil || c.reply != last.reply
}

// parse reads protojson, also of a later CRI.
func parse(text []byte, into proto.Message) error {
	if len(text) == 0 {
		return errors.New("no answer in it")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, into)
}
