package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

var errLostUnderWay = errors.New("a message was lost under way")

// handle delivers the events of one message.
func (w *watch) handle(ctx context.Context, m jetstream.Msg) error {
	metadata, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("receive message: %w", err)
	}
	if w.received++; metadata.Sequence.Consumer != w.received {
		return errLostUnderWay
	}
	at := place{stream: w.at.stream, message: metadata.Sequence.Stream, stored: metadata.Timestamp.UnixNano()}
	if w.skipped == 0 && at.message > w.at.covered()+1 {
		w.skipped = w.at.covered() + 1
	}
	node, err := fromToken(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])
	decoded, unreadable := decode(m.Data())
	if err := cmp.Or(err, unreadable); err != nil {
		// It leaves out numbers of its node, which the next message shows.
		w.passOver(m.Subject(), err)
	} else if err := w.deliver(ctx, node, decoded, at); err != nil {
		return err
	}
	if at.message > w.at.covered() {
		w.at = at
	}
	return w.deliverSynced()
}

// passOver notes that something cannot be read.
func (w *watch) passOver(subject string, err error) {
	if w.o.Unreadable != nil {
		w.o.Unreadable(fmt.Errorf("cannot read %s: %w", subject, err))
	}
}

func (w *watch) deliver(ctx context.Context, node string, m message, at place) error {
	p := w.nodes[node]
	if p == nil {
		p = &progress{}
		if !w.whole && !m.gap {
			p.epoch = m.epoch // it had published before the watch began
		}
		w.nodes[node] = p
	}
	switch p.judge(m) {
	case skip:
		p.advance(m)
		return nil
	case replayGap:
		gap := m.events[0]
		if err := w.announceGap(node, m, gap.Reason, gap.Missed); err != nil {
			return err
		}
		return w.replayNode(ctx, node, m)
	case replayHole:
		var missed uint64
		if p.based && m.epoch == p.epoch {
			missed = m.first - 1 - p.seq
		}
		if err := w.announceGap(node, m, pleg.HistoryTooShort, missed); err != nil {
			return err
		}
		if err := w.replayNode(ctx, node, m); err != nil {
			return err
		}
	case deliver:
	}
	return w.deliverEvents(node, m, at)
}

// deliverEvents delivers those events of a message that are new and wanted.
func (w *watch) deliverEvents(node string, m message, at place) error {
	p := w.nodes[node]
	if p.ahead {
		return nil
	}
	for i, data := range m.events {
		if at.events = i + 1; at.events == len(m.events) {
			at.events = 0
		}
		delivered := w.at.message == at.message && i < w.at.events // before the watch resumed
		if delivered || !p.isNew(&data.Event) || !w.filter.WantsEvent(&data.Event) || !w.filter.WantsLabels(data.Labels) {
			continue
		}
		ev := Event{Event: data.Event, Node: node}
		if len(w.pending) == 0 { // else later messages may have events that the replay included
			ev.At = at.position()
		}
		if err := w.send(ev); err != nil {
			return err
		}
	}
	p.advance(m)
	return nil
}

// announceGap delivers a Gap of a node, or of all if node is empty. A replay must follow.
func (w *watch) announceGap(node string, m message, reason string, missed uint64) error {
	w.broken = true
	if node == "" {
		w.pending = nil
	} else {
		w.pending = slices.DeleteFunc(w.pending, func(p pending) bool { return p.node == node })
	}
	return w.send(Event{Node: node, Event: pleg.Event{
		Type: pleg.Gap, Epoch: m.epoch, Seq: m.last, Reason: reason, Missed: missed, ObservedAt: time.Now(),
	}})
}

// replayAll delivers the present state of all nodes.
func (w *watch) replayAll(ctx context.Context) error {
	w.nodes, w.whole, w.broken = make(map[string]*progress), true, true
	nodeKeys, podKeys := keys(w.o.Cluster, w.o.Nodes, nil)
	if err := w.readBucket(ctx, StateBucket, nodeKeys, w.replayNodeState); err != nil {
		return err
	}
	if err := w.readBucket(ctx, StateBucket, podKeys, w.replayPodState); err != nil {
		return err
	}
	last, err := w.lastSequence(ctx, w.nameOf(EventStream), w.subjects...)
	if err != nil {
		return err
	}
	w.broken = false
	w.pending = append(w.pending, pending{at: last})
	return w.deliverSynced()
}

// replayNode delivers the present state of the node of m. If the state is of another
// epoch than m, it is newer.
func (w *watch) replayNode(ctx context.Context, node string, m message) error {
	delete(w.nodes, node)
	w.broken = true
	key := nodeKey(w.o.Cluster, node)
	err := w.readNode(ctx, []string{key, key + ".*.*"}, func(e entry) error {
		if e.key == key {
			return w.replayNodeState(e)
		}
		return w.replayPodState(e)
	})
	if err != nil {
		return err
	}
	last, err := w.lastSequence(ctx, w.nameOf(EventStream), w.eventSubject(w.o.Cluster, node))
	if err != nil {
		return err
	}
	w.broken = false
	w.pending = append(w.pending, pending{node, last})
	p := w.nodes[node]
	if p == nil { // somebody has removed the state
		p = &progress{epoch: m.epoch, gapSeq: m.last}
		w.nodes[node] = p
	}
	p.ahead = p.epoch != m.epoch
	if m.gap {
		p.advance(m)
	}
	return nil
}

// replayNodeState notes the epoch of a node's states.
func (w *watch) replayNodeState(e entry) error {
	var state nodeState
	name, ok := w.read(e, &state)
	if !ok {
		return nil
	}
	w.nodes[name] = &progress{epoch: state.Epoch, gapSeq: state.Seq, after: state.After, included: make(map[pleg.PodUID]uint64)}
	return nil
}

// read decodes an entry of [StateBucket] and returns its node; false for the mark of a removal,
// and for what cannot be read and is passed over.
func (w *watch) read(e entry, state any) (node string, ok bool) {
	if e.value == nil {
		return "", false
	}
	node, err := decodeState(e, state)
	if err != nil {
		w.passOver(subjectOf(w.nameOf(StateBucket), e.key), err)
	}
	return node, err == nil
}

// replayPodState delivers the events in the state of a pod.
func (w *watch) replayPodState(e entry) error {
	var state podState
	name, ok := w.read(e, &state)
	if !ok {
		return nil
	}
	p := w.nodes[name]
	if p == nil || !state.isCurrent(p.epoch, p.after) {
		return nil
	}
	if p.included[state.UID] = state.Seq; state.Epoch != p.epoch {
		p.included[state.UID] = math.MaxUint64 // whatever this epoch has of the pod is older
	}
	for _, ev := range state.Events {
		ev.Replayed = true
		if !w.filter.WantsEvent(&ev) || !w.filter.WantsLabels(state.Labels) {
			continue
		}
		if err := w.send(Event{Event: ev, Node: name}); err != nil {
			return err
		}
	}
	return nil
}

// deliverSynced delivers a Synced for each replay that is complete.
func (w *watch) deliverSynced() error {
	for i := 0; i < len(w.pending); {
		p := w.pending[i]
		if p.at > w.at.covered() {
			i++
			continue
		}
		w.pending = slices.Delete(w.pending, i, i+1)
		mark := Event{Node: p.node, Event: pleg.Event{Type: pleg.Synced, ObservedAt: time.Now()}}
		if len(w.pending) == 0 {
			mark.At = w.at.position()
		}
		if n := w.nodes[p.node]; n != nil {
			mark.Epoch, mark.Seq = n.epoch, n.seq
		}
		if err := w.send(mark); err != nil {
			return err
		}
	}
	return nil
}
