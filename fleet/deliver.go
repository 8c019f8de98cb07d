package fleet

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// The reasons of a Gap beside those of package pleg.
const (
	// NodeNew means that the stream contained no message of the node: no events are missing.
	NodeNew = "NodeNew"
	// NodeGone means that the stream no longer contains a message of the node. Its pods are gone.
	NodeGone = "NodeGone"
)

// progress is how far a watch has come with one node.
type progress struct {
	// last is the sequence number up to which the watch has received the node's messages.
	last uint64
	// epoch and seq are of the last event that was delivered or replayed; empty before the first one, and once the node is gone.
	epoch string
	seq   uint64
	// doubted is true after a message with a number that the node cannot have reached yet. After a second one its
	// state is read again.
	doubted bool
	// replaying is true from the Gap of an agent until it has published the states of all pods.
	replaying bool
	// owes is true if a Synced of the node waits for the end of the replay of all nodes: a server that is behind must
	// send more.
	owes bool
}

// note takes the progress of the node from a message that was delivered or replayed.
func (p *progress) note(m *message) {
	if m.kind == ofEvent || m.kind == ofState || m.kind == ofSynced {
		if p.seq = m.Seq; p.epoch != m.Epoch {
			p.epoch = strings.Clone(m.Epoch) // without the message
		}
	}
}

// hole returns the Gap that the next message of the node shows; nil if no message is missing before it. The watch has
// received everything up to the number until.
func (p *progress) hole(m *message, previous, until uint64) *pleg.Event {
	if previous <= max(p.last, until) && (m.kind != ofSynced || p.replaying) { // otherwise its Gap came before the watch
		return nil
	}
	hole := pleg.Event{Epoch: m.Epoch, Seq: m.Seq, Reason: pleg.HistoryTooShort}
	if m.kind == ofEvent && m.Epoch == p.epoch && m.Seq > p.seq {
		hole.Missed = m.Seq - 1 - p.seq
	}
	return &hole
}

// beyond reports whether the number of a message is one that its node cannot have reached yet: somebody else wrote
// it. Without a hole, each event carries the next number; a Gap carries the number of the newest missing event.
func (p *progress) beyond(m *message) bool {
	next := p.seq
	if m.kind == ofEvent {
		next++
	}
	return m.kind != ofGap && m.Epoch != "" && m.Epoch == p.epoch && m.Seq > next
}

// previous returns the sequence number of the node's message before this one, which the agent named; 0 if it named none.
func previous(m *jetstream.RawStreamMsg) uint64 {
	if n := m.Header.Get(batchSequence); n != "" && n != "1" || m.Header.Get(jetstream.ExpectedLastMsgIDHeader) != "" {
		return m.Sequence - 1
	}
	number, _ := strconv.ParseUint(m.Header.Get(jetstream.ExpectedLastSubjSeqHeader), 10, 64)
	return number
}

// handle delivers the content of one message.
func (w *watch) handle(ctx context.Context, m *jetstream.RawStreamMsg) error {
	at := place{w.end.stream, m.Sequence, m.Time.UnixNano()}
	if w.at == (place{}) && w.seen == nil {
		w.start = max(w.start, m.Sequence-1)
	}
	decoded, err := decode(m.Data)
	if err == nil {
		err = w.deliver(ctx, m, &decoded, at)
	} else {
		w.passOver(m.Subject, err)
		err = w.unread(ctx, m, at)
	}
	if err == nil {
		w.at, w.known.message = at, max(w.known.message, at.message)
	}
	return err
}

// passOver notes that a message cannot be read.
func (w *watch) passOver(subject string, err error) {
	if w.o.Unreadable != nil {
		w.o.Unreadable(fmt.Errorf("cannot read %s: %w", subject, err))
	}
}

// unread delivers the state of a node of which a message could not be read: no position may pass over an event.
func (w *watch) unread(ctx context.Context, m *jetstream.RawStreamMsg, at place) error {
	node := nodeOf(m.Subject)
	if p := w.nodes[node]; w.seen != nil || p != nil && at.message <= p.last {
		return nil
	}
	own, err := w.newest(ctx, nodeSubject(w.o.Cluster, node))
	if err != nil || own.Sequence == 0 { // nobody publishes for this node
		return err
	}
	return w.replayNode(ctx, node, &pleg.Event{Reason: pleg.HistoryTooShort}, at)
}

func (w *watch) deliver(ctx context.Context, raw *jetstream.RawStreamMsg, m *message, at place) error {
	node := nodeOf(raw.Subject)
	p := w.nodes[node]
	if p == nil {
		p = new(progress)
		w.nodes[node] = p
	}
	if at.message <= p.last {
		return nil
	}
	if w.seen != nil {
		if _, again := w.seen[raw.Subject]; !again {
			w.seen[raw.Subject] = struct{}{}
			switch {
			case m.kind == ofGap: // the state is not complete before its Synced
				return w.beginStates(node, p, m, at)
			case m.kind == ofGone && p.last > 0: // a mirror still contains its pods
				return w.sendGone(node, at)
			}
			p.last = at.message
			p.note(m)
			return w.replayPod(node, m)
		}
		if at.message <= w.known.message {
			return errBehind // the state is older than what the watch has delivered
		}
		w.seen = nil // from here on events are new
	}
	if m.kind == ofGone {
		return w.sendGone(node, at)
	}
	if gap := p.hole(m, previous(raw), w.start); gap != nil {
		return w.replayNode(ctx, node, gap, at)
	}
	p.last = at.message
	if p.beyond(m) {
		w.passOver(raw.Subject, fmt.Errorf("it has the number %d: the last one of its node is %d", m.Seq, p.seq))
		if p.doubted = !p.doubted; p.doubted {
			return nil
		}
		return w.replayNode(ctx, node, &pleg.Event{Reason: pleg.HistoryTooShort}, at)
	}
	switch {
	case m.kind == ofGap:
		return w.beginStates(node, p, m, at)
	case p.replaying && m.kind == ofState:
		return w.replayPod(node, m)
	case p.replaying && m.kind == ofSynced:
		p.replaying = false
		p.note(m)
		return w.sendSynced(node, p, at)
	case m.kind != ofEvent:
		return nil
	}
	p.note(m)
	if w.filter.WantsEvent(&m.Event) && w.wants(m) {
		return w.send(Event{Event: m.Event, Node: node, At: w.position(at)})
	}
	return nil
}

// wants reports whether the labels of the pod in a message are wanted.
func (w *watch) wants(m *message) bool {
	if w.o.Filter.Selector == "" {
		return true
	}
	pod, _ := podIn[podLabels](m)
	return w.filter.WantsLabels(pod.Labels)
}

// beginStates delivers the Gap of an agent, which the states of all pods follow.
func (w *watch) beginStates(node string, p *progress, m *message, at place) error {
	*p = progress{last: at.message, replaying: true}
	return w.sendGap(node, &m.Event)
}

// replayPod delivers the last event of each container and sandbox of a pod.
func (w *watch) replayPod(node string, m *message) error {
	if m.Pod == nil || !w.wants(m) {
		return nil
	}
	for _, ev := range m.Pod.Events {
		if ev.Replayed = true; !w.filter.WantsEvent(&ev) {
			continue
		}
		if err := w.send(Event{Event: ev, Node: node}); err != nil {
			return err
		}
	}
	return nil
}

func (w *watch) sendGap(node string, gap *pleg.Event) error {
	return w.send(Event{Node: node, Event: pleg.Event{
		Type: pleg.Gap, Epoch: gap.Epoch, Seq: gap.Seq, Reason: gap.Reason, Missed: gap.Missed, ObservedAt: time.Now(),
	}})
}

func (w *watch) sendSynced(node string, p *progress, at place) error {
	if p.owes = w.broken; p.owes {
		return nil
	}
	return w.send(Event{Node: node, At: w.position(at), Event: pleg.Event{Type: pleg.Synced, Epoch: p.epoch, Seq: p.seq, ObservedAt: time.Now()}})
}

// sendGone says that a node has left: a Gap, and no pods after it.
func (w *watch) sendGone(node string, at place) error {
	p := &progress{last: at.message}
	w.nodes[node] = p
	if err := w.sendGap(node, &pleg.Event{Reason: NodeGone}); err != nil {
		return err
	}
	return w.sendSynced(node, p, at)
}

// lookPeriod is the time between two looks for nodes that have left.
const lookPeriod = 20 * time.Second

// look delivers a mark for each node without a message in the stream: its messages were purged, or were too old.
func (w *watch) look(ctx context.Context) error {
	there := make(map[string]bool)
	for _, subject := range subjects(subjectPrefix, w.o.Cluster, w.o.Nodes, "."+nodeToken) {
		info, err := w.info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return err
		}
		for own := range info.State.Subjects {
			there[nodeOf(own)] = true
		}
	}
	for node, p := range w.nodes {
		if p.epoch != "" && !there[node] {
			if err := w.sendGone(node, w.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// replayNode delivers a Gap and then the present state of a node.
func (w *watch) replayNode(ctx context.Context, node string, gap *pleg.Event, at place) error {
	broken := w.broken
	w.broken = true
	if err := w.sendGap(node, gap); err != nil {
		return err
	}
	p := new(progress)
	w.nodes[node] = p
	last := make(map[string]*message)
	until, err := w.snapshot(ctx, allOf(w.o.Cluster, node), func(m *jetstream.RawStreamMsg) {
		decoded, err := decode(m.Data)
		if err != nil {
			w.passOver(m.Subject, err)
			return
		}
		p.note(&decoded)
		last[m.Subject], p.last = &decoded, m.Sequence
	})
	if err != nil {
		return err
	}
	p.last = max(p.last, until, at.message)
	for _, m := range last {
		if err := w.replayPod(node, m); err != nil {
			return err
		}
	}
	w.broken, w.withheld = broken, max(w.withheld, p.last)
	return w.sendSynced(node, p, at)
}
