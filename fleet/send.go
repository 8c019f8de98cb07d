package fleet

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// outgoing is a message that is not acknowledged.
type outgoing struct {
	kind       kind
	observedAt time.Time
	subject    string
	body       *object
	record     *record
	// number is its id for the server, with the name of the agent.
	number int
	ack    jetstream.PubAckFuture
}

// bodies are the bodies of acknowledged messages, to be used again.
var bodies sync.Pool

// enqueue makes the message about a pod.
func (p *Publisher) enqueue(ctx context.Context, k kind, ev pleg.Event, r *record) error {
	limit := int(p.o.Conn.MaxPayload()) - 1024 // for the headers
	body, _ := bodies.Get().(*object)
	if body == nil {
		body = new(object)
	}
	text, cut, err := r.encode((*body)[:0], p.source, k, &ev, limit)
	if err != nil {
		return fmt.Errorf("encode pod %s: %w", ev.PodUID, err)
	}
	if cut != "" {
		p.cut(ctx, &ev, cut)
	}
	*body = text
	p.made++
	p.queue = append(p.queue, outgoing{k, ev.ObservedAt, podSubject(p.o.Cluster, p.o.Node, ev.PodUID), body, r, p.made, nil})
	return nil
}

// fenceSpan is the number of messages after which the node's own message is written again: the
// server looks for it with each message, and has the newest messages in memory.
const fenceSpan = 20_000

// transmit sends what of the queue may be under way. One server gets many messages without waiting
// for each: if it refuses one for the fence, it refuses the messages behind it too. Several servers
// refuse a message that names the same fence as a message that they have not stored yet.
func (p *Publisher) transmit(ctx context.Context) error {
	window := exporter.Buffer
	if p.stream.CachedInfo().Config.Replicas > 1 {
		window = 1
	}
	// The newest message must not hide what the server has lost meanwhile.
	if p.o.Conn.Stats().Reconnects != p.reconnects {
		return errReconnected
	}
	if len(p.queue) > p.sent && p.last > p.fence+fenceSpan {
		if p.sent > 0 {
			return nil
		}
		if err := p.writeNode(ctx, ofAgent, pleg.Event{ObservedAt: time.Now()}); err != nil {
			return err
		}
	}
	fence := strconv.FormatUint(p.fence, 10)
	for ; p.sent < min(window, len(p.queue)); p.sent++ {
		o := &p.queue[p.sent]
		ack, err := p.js.PublishMsgAsync(&nats.Msg{Subject: o.subject, Data: *o.body, Header: nats.Header{
			"Content-Type":                                {contentType},
			jetstream.MsgIDHeader:                         {p.agent + "/" + strconv.Itoa(o.number)},
			jetstream.ExpectedLastSubjSeqHeader:           {fence},
			"Nats-Expected-Last-Subject-Sequence-Subject": {p.node},
		}}, jetstream.WithRetryAttempts(0), jetstream.WithStallWait(requestTimeout))
		if err != nil {
			return fmt.Errorf("publish: %w", explain(p.o.Conn, err))
		}
		o.ack = ack
	}
	return nil
}

// await waits until at most some messages are not acknowledged.
func (p *Publisher) await(ctx context.Context, most int) (err error) {
	if err := p.transmit(ctx); err != nil || len(p.queue) <= most {
		return err
	}
	timeout := time.NewTimer(requestTimeout)
	defer timeout.Stop()
	for len(p.queue) > most {
		select {
		case ack := <-p.queue[0].ack.Ok():
			p.acknowledged(ack.Sequence)
			timeout.Reset(requestTimeout)
			if err := p.transmit(ctx); err != nil {
				return err
			}
			continue
		case err = <-p.queue[0].ack.Err():
		case <-timeout.C:
			err = nats.ErrTimeout
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		return fmt.Errorf("publish: %w", explain(p.o.Conn, err))
	}
	p.loop.Works(ctx)
	return nil
}

// acknowledged notes that the server has the first message of the queue.
func (p *Publisher) acknowledged(seq uint64) {
	now, o := time.Now(), p.queue[0]
	p.queue, p.sent = p.queue[1:], p.sent-1
	o.record.stored, p.last = now, max(p.last, seq)
	bodies.Put(o.body)
	if o.kind == ofEvent {
		p.metrics.published.Inc()
		p.metrics.lag.Observe(now.Sub(o.observedAt).Seconds())
	}
	p.loop.Acknowledged()
}

// writeNode publishes the message about the node that the next messages name, as the successor of
// the message that they named so far.
func (p *Publisher) writeNode(ctx context.Context, k kind, ev pleg.Event) error {
	body, err := encode(nil, p.source, k, &ev)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	body = append(body.text("agent", p.agent), "}}"...)
	expected := p.fence
	p.fence = 0 // until it is known
	ack, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: p.node, Data: body, Header: nats.Header{"Content-Type": {contentType}}},
		jetstream.WithExpectLastSequencePerSubject(expected))
	if err != nil {
		return fmt.Errorf("publish: %w", explain(p.o.Conn, err))
	}
	p.fence, p.fenced, p.last = ack.Sequence, time.Now(), max(p.last, ack.Sequence)
	p.loop.Acknowledged()
	return nil
}
