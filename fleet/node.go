package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// writeNode publishes the message about the node that the next ones name.
func (p *Publisher) writeNode(ctx context.Context, k kind, ev pleg.Event) error {
	if k != ofGap {
		ev = pleg.Event{Epoch: p.at.Epoch, Seq: p.at.Seq, ObservedAt: time.Now()}
	}
	body, err := encode(p.source, k, data{Event: ev, Agent: p.agent})
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	expected := p.fence
	p.fence = 0 // until it is known
	seq, err := p.publishNode(ctx, body, expected)
	if err != nil {
		return err
	}
	p.fence, p.fenced = seq, time.Now()
	p.begun = k == ofBegin
	p.last = sent{p.nodeSubject(), seq, p.fenced}
	p.loop.Acknowledged()
	return nil
}

// nodeKind is the kind of a message about the node that changes nothing.
func (p *Publisher) nodeKind() kind {
	if p.begun {
		return ofBegin
	}
	return ofAgent
}

// publishNode publishes a message about the node as the successor of the one with a sequence number.
func (p *Publisher) publishNode(ctx context.Context, body []byte, expected uint64) (seq uint64, err error) {
	m := nats.NewMsg(p.nodeSubject())
	m.Data = body
	m.Header.Set("Content-Type", contentType)
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	ack, err := p.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(expected))
	if err != nil {
		return 0, fmt.Errorf("publish: %w", explain(p.o.Conn, err))
	}
	return ack.Sequence, nil
}

// publishReplay publishes the states of all pods, and that others are gone, and then the Gap: its
// readers find the states complete.
func (p *Publisher) publishReplay(ctx context.Context, synced pleg.Event) error {
	gap, at := *p.gap, pleg.Position{Epoch: synced.Epoch, Seq: synced.Seq}
	gap.Epoch, gap.Seq, gap.ObservedAt = at.Epoch, at.Seq, synced.ObservedAt
	p.at = at
	if !p.begun {
		if err := p.writeNode(ctx, ofBegin, pleg.Event{}); err != nil {
			return err
		}
	}
	for uid, r := range p.strays {
		if now := p.pods[uid]; now == nil || len(now.Events) == 0 {
			r.podState = podState{}
			if err := p.enqueueState(ctx, uid, r, at); err != nil {
				return err
			}
			delete(p.pods, uid)
		}
	}
	for uid, r := range p.pods {
		if len(r.Events) == 0 { // it has come and gone
			delete(p.pods, uid)
			continue
		}
		if err := p.enqueueState(ctx, uid, r, at); err != nil {
			return err
		}
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	p.metrics.gaps.Inc()
	if err := p.writeNode(ctx, ofGap, gap); err != nil {
		return err
	}
	p.acked, p.gap, p.replay = at, nil, false
	clear(p.strays)
	p.loop.Works(ctx)
	return nil
}

func (p *Publisher) beatPeriod() time.Duration {
	if age := p.stream.CachedInfo().Config.MaxAge; age > 0 {
		return min(beatPeriod, age/8)
	}
	return beatPeriod
}

// refresh publishes some states again that are old, so that the server does not remove them: those
// that had no message for half of its age, or are in the older half of a stream with a limited size.
func (p *Publisher) refresh(ctx context.Context) error {
	config := p.stream.CachedInfo().Config
	if p.gap != nil {
		return nil
	}
	due, most := func(sent) bool { return false }, len(p.pods)
	switch {
	case config.MaxBytes > 0 && time.Since(p.renewed) > beatPeriod:
		return nil // it costs a request
	case config.MaxBytes > 0:
		info, err := p.stream.Info(ctx)
		if err != nil {
			return fmt.Errorf("stream %s: %w", p.name(), explain(p.o.Conn, err))
		}
		half := info.State.FirstSeq + (info.State.LastSeq-info.State.FirstSeq)/2
		due = func(s sent) bool { return s.seq < half || config.MaxAge > 0 && time.Since(s.at) > config.MaxAge/2 }
	case config.MaxAge > 0:
		due = func(s sent) bool { return time.Since(s.at) > config.MaxAge/2 }
		most = 1 + int(4*time.Duration(most)*p.beatPeriod()/config.MaxAge)
	}
	if due(sent{seq: p.fence, at: p.fenced}) {
		if err := p.writeNode(ctx, p.nodeKind(), pleg.Event{}); err != nil {
			return err
		}
	}
	var old []pleg.PodUID
	for uid, r := range p.pods {
		if due(r.last) {
			old = append(old, uid)
		}
	}
	slices.SortFunc(old, func(a, b pleg.PodUID) int { return cmp.Compare(p.pods[a].last.seq, p.pods[b].last.seq) })
	for _, uid := range old[:min(most, len(old))] {
		if err := p.enqueueState(ctx, uid, p.pods[uid], p.at); err != nil {
			return err
		}
	}
	return p.flush(ctx)
}
