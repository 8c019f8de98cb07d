package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// progress is how far a watch has come with one node.
type progress struct {
	// epoch and seq are of the last event that was delivered or replayed; empty before the first one.
	epoch string
	seq   uint64
	// replayed is the sequence number of the message up to which a replay had everything.
	replayed uint64
	// replaying is true from the Gap of an agent until it has published the states of all pods.
	replaying bool
}

// note takes over what a message that was delivered or replayed says of its node.
func (p *progress) note(m *message) {
	if m.kind != ofGap && m.kind != ofAgent {
		p.epoch, p.seq = m.Epoch, m.Seq
	}
}

// judge returns whether the event in the next message of the node is to be delivered, or the Gap after which
// the state of the node is.
func (p *progress) judge(m *message) (deliver bool, gap *pleg.Event) {
	switch {
	case m.kind == ofSynced: // its Gap came before the watch
	case m.kind != ofEvent || m.Epoch == p.epoch && m.Seq <= p.seq:
		return false, nil
	case !p.replaying && (p.epoch == "" || m.Epoch == p.epoch && m.Seq == p.seq+1):
		return true, nil
	}
	hole := m.Event // messages before this are missing
	hole.Reason, hole.Missed = pleg.HistoryTooShort, 0
	if m.Epoch == p.epoch && m.Seq > p.seq {
		hole.Missed = m.Seq - 1 - p.seq
	}
	return false, &hole
}

// handle delivers what one message says.
func (w *watch) handle(ctx context.Context, m *stored) error {
	at := place{w.end.stream, m.Sequence, m.Time.UnixNano()}
	decoded, err := decode(m.Data)
	if err != nil {
		// It leaves out a number of its node, which the next message shows.
		w.passOver(m.Subject, err)
	} else if err := w.deliver(ctx, m.Subject, &decoded, at); err != nil {
		return err
	}
	w.at = at
	return nil
}

// passOver notes that something cannot be read.
func (w *watch) passOver(subject string, err error) {
	if w.o.Unreadable != nil {
		w.o.Unreadable(fmt.Errorf("cannot read %s: %w", subject, err))
	}
}

func (w *watch) deliver(ctx context.Context, subject string, m *message, at place) error {
	node := nodeOf(subject)
	p := w.nodes[node]
	if p == nil {
		p = new(progress)
		w.nodes[node] = p
	}
	if at.message <= p.replayed {
		return nil
	}
	if w.seen != nil {
		if _, again := w.seen[subject]; !again {
			w.seen[subject] = struct{}{}
			p.note(m)
			return w.replayPod(node, m)
		}
		w.seen = nil // from here on it is what happens
	}
	switch {
	case m.kind == ofGap:
		*p = progress{replaying: true}
		return w.sendGap(node, &m.Event)
	case p.replaying && m.kind == ofState:
		return w.replayPod(node, m)
	case p.replaying && m.kind == ofSynced:
		*p = progress{epoch: m.Epoch, seq: m.Seq}
		return w.sendSynced(node, p, at)
	}
	deliver, gap := p.judge(m)
	if gap != nil {
		return w.replayNode(ctx, node, gap, at)
	}
	if !deliver {
		return nil
	}
	p.note(m)
	if w.filter.WantsEvent(&m.Event) && w.filter.WantsLabels(m.Pod.Labels) {
		return w.send(Event{Event: m.Event, Node: node, At: w.position(at)})
	}
	return nil
}

// replayPod delivers the last event of each container and sandbox of a pod.
func (w *watch) replayPod(node string, m *message) error {
	if m.Pod == nil || !w.filter.WantsLabels(m.Pod.Labels) {
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
	return w.send(Event{Node: node, At: w.position(at), Event: pleg.Event{Type: pleg.Synced, Epoch: p.epoch, Seq: p.seq, ObservedAt: time.Now()}})
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
	until, err := w.snapshot(ctx, allOf(w.o.Cluster, node), func(m *stored) {
		decoded, err := decode(m.Data)
		if err != nil {
			w.passOver(m.Subject, err)
			return
		}
		p.note(&decoded)
		last[m.Subject], p.replayed = &decoded, m.Sequence
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
	return w.sendSynced(node, p, at)
}
