package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// progress is how far a watch has come with one node.
type progress struct {
	// epoch and seq are of the last event that was delivered or replayed, if known is true.
	epoch string
	seq   uint64
	known bool
	// begun is true while an agent replaces the states of the node: nothing is delivered until its Gap.
	begun bool
	// replayed is the sequence number of the message up to which a replay had everything.
	replayed uint64
	// seen are the pods that the present state of all nodes had so far.
	seen map[pleg.PodUID]struct{}
}

// note takes over what a message that was delivered or replayed says of its node.
func (p *progress) note(m *message) {
	switch m.kind {
	case ofBegin:
		p.begun = true
	case ofAgent:
		p.begun = false
	default:
		p.epoch, p.seq, p.known = m.Epoch, m.Seq, true
		p.begun = p.begun && m.kind != ofGap
	}
}

// action is what a watch does with a message.
type action int

const (
	skip action = iota
	deliver
	// replayGap replays the state of the node, because the message is a Gap.
	replayGap
	// replayHole does, because messages before this one are missing.
	replayHole
)

// judge returns what to do with the next message of the node.
func (p *progress) judge(m *message) action {
	switch {
	case m.kind == ofGap:
		return replayGap
	case m.kind == ofBegin || m.kind == ofAgent || p.begun && m.kind == ofState:
		return skip
	case !p.known:
		if m.kind == ofState {
			return skip
		}
		return deliver
	case m.Epoch != p.epoch || p.begun:
		return replayHole
	case m.Seq <= p.seq:
		return skip
	case m.kind == ofState || m.Seq > p.seq+1:
		return replayHole
	}
	return deliver
}

// handle delivers what one message says.
func (w *watch) handle(ctx context.Context, m jetstream.Msg) error {
	metadata, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("receive message: %w", err)
	}
	if w.received++; metadata.Sequence.Consumer != w.received {
		return errLostUnderWay
	}
	at := place{w.at.stream, metadata.Sequence.Stream, metadata.Timestamp.UnixNano()}
	if w.skipped == 0 && at.message > w.at.message+1 && at.message > w.state && w.at.message > 0 {
		w.skipped = w.at.message + 1
	}
	if w.owes && at.message > w.mark && w.mark > w.at.message { // the last message before was replaced
		w.at = place{stream: w.at.stream, message: w.mark}
		if err := w.deliverSynced(); err != nil {
			return err
		}
	}
	node, err := nodeOf(m.Subject(), nodePlace)
	var decoded message
	if err == nil {
		decoded, err = decode(m.Data())
	}
	if err != nil {
		// It leaves out numbers of its node, which the next message shows.
		w.passOver(m.Subject(), err)
	} else if err := w.deliver(ctx, node, &decoded, at); err != nil {
		return err
	}
	w.at = at
	return w.deliverSynced()
}

// passOver notes that something cannot be read.
func (w *watch) passOver(subject string, err error) {
	if w.o.Unreadable != nil {
		w.o.Unreadable(fmt.Errorf("cannot read %s: %w", subject, err))
	}
}

func (w *watch) deliver(ctx context.Context, node string, m *message, at place) error {
	p := w.nodes[node]
	if p == nil {
		p = &progress{known: w.whole && at.message > w.state}
		w.nodes[node] = p
	}
	if at.message <= p.replayed {
		return nil
	}
	if at.message <= w.state {
		return w.deliverState(node, p, m)
	}
	p.seen = nil
	switch p.judge(m) {
	case replayGap:
		return w.replayNode(ctx, node, m, at)
	case replayHole:
		hole := *m
		hole.Reason, hole.Missed = pleg.HistoryTooShort, 0
		if m.Epoch == p.epoch && m.Seq > p.seq+1 {
			hole.Missed = m.Seq - 1 - p.seq
		}
		return w.replayNode(ctx, node, &hole, at)
	case deliver:
		if err := w.deliverEvent(node, m, at); err != nil {
			return err
		}
		p.note(m)
	case skip:
		if m.kind == ofBegin || m.kind == ofAgent {
			p.note(m)
		}
	}
	return nil
}

// deliverState delivers a message that the present state of all nodes has: the state of the pod, unless
// another message had it.
func (w *watch) deliverState(node string, p *progress, m *message) error {
	p.note(m)
	if !m.aboutPod() {
		return nil
	}
	if _, again := p.seen[m.PodUID]; !again {
		if p.seen == nil {
			p.seen = make(map[pleg.PodUID]struct{})
		}
		p.seen[m.PodUID] = struct{}{}
		return w.replayPod(node, m)
	}
	if m.kind != ofEvent || p.begun {
		return nil
	}
	return w.deliverEvent(node, m, place{})
}

// deliverEvent delivers an event if it is wanted.
func (w *watch) deliverEvent(node string, m *message, at place) error {
	if !w.filter.WantsEvent(&m.Event) || !w.filter.WantsLabels(m.Pod.Labels) {
		return nil
	}
	ev := Event{Event: m.Event, Node: node}
	if at.message >= max(w.withheld, 1) {
		ev.At = at.position()
	}
	return w.send(ev)
}

// replayPod delivers the last event of each container and sandbox of a pod.
func (w *watch) replayPod(node string, m *message) error {
	if !w.filter.WantsLabels(m.Pod.Labels) {
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

// announceGap delivers a Gap of a node, or of all if node is empty. A replay must follow.
func (w *watch) announceGap(node string, m message) error {
	w.broken = true
	return w.send(Event{Node: node, Event: pleg.Event{
		Type: pleg.Gap, Epoch: m.Epoch, Seq: m.Seq, Reason: m.Reason, Missed: m.Missed, ObservedAt: time.Now(),
	}})
}

// replayNode delivers a Gap and then the present state of the node of m.
func (w *watch) replayNode(ctx context.Context, node string, m *message, at place) error {
	broken := w.broken
	if err := w.announceGap(node, *m); err != nil {
		return err
	}
	p := &progress{known: true}
	w.nodes[node] = p
	last := make(map[pleg.PodUID]*message)
	until, err := w.snapshot(ctx, subjectsOf(w.o.Cluster, []string{node}), func(m *stored) error {
		decoded, err := decode(m.Data)
		if err != nil {
			w.passOver(m.Subject, err)
			return nil
		}
		p.note(&decoded)
		if decoded.aboutPod() {
			last[decoded.PodUID] = &decoded
		}
		p.replayed = m.Sequence
		return nil
	})
	if err != nil {
		return err
	}
	p.replayed = max(p.replayed, until)
	for _, m := range last {
		if err := w.replayPod(node, m); err != nil {
			return err
		}
	}
	w.broken, w.withheld = broken, max(w.withheld, p.replayed)
	return w.sendSynced(Event{Node: node, Event: pleg.Event{Epoch: p.epoch, Seq: p.seq}}, at)
}

// deliverSynced delivers the Synced that the watch owes, once it has the message.
func (w *watch) deliverSynced() error {
	if !w.owes || w.at.message < w.mark {
		return nil
	}
	w.owes, w.broken = false, false
	for _, p := range w.nodes {
		p.seen = nil
	}
	return w.sendSynced(Event{}, w.at)
}

func (w *watch) sendSynced(ev Event, at place) error {
	ev.Type, ev.ObservedAt = pleg.Synced, time.Now()
	if at.message >= w.withheld {
		ev.At = at.position()
	}
	return w.send(ev)
}
