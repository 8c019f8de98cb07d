package fleet

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// outgoing is a message that is not acknowledged.
type outgoing struct {
	kind        kind
	observedAt  time.Time
	subject, id string
	body        object
	record      *record
	ack         jetstream.PubAckFuture
}

// bodies are the bodies of acknowledged messages, to be used again.
var bodies sync.Pool

// enqueue makes the message about a pod. The fields are those of inner.
func (p *Publisher) enqueue(ctx context.Context, k kind, subject string, ev *pleg.Event, fields object, r *record) error {
	const headers = 1024
	to, _ := bodies.Get().(object)
	id, body, cut, err := r.encode(to, p.source, k, ev, fields, int(p.o.Conn.MaxPayload())-headers)
	if err != nil {
		return fmt.Errorf("encode pod %s: %w", ev.PodUID, err)
	}
	if cut != "" {
		p.cut(ctx, ev, cut)
	}
	p.queue = append(p.queue, outgoing{k, ev.ObservedAt, subject, p.key + "/" + id, body, r, nil})
	return nil
}

// window is the number of messages that may be under way. If one server refuses a message for the fence,
// it refuses the messages behind it too. Several servers refuse a message that names the same fence as a
// message that they have not stored yet.
func (p *Publisher) window() int {
	if p.stream.CachedInfo().Config.Replicas > 1 {
		return 1
	}
	return 256
}

// fenceSpan is the number of messages after which the node's own message is written again: the
// server looks for it with each message, and has the newest messages in memory.
const fenceSpan = 20_000

// transmit sends what of the queue may be under way.
func (p *Publisher) transmit(ctx context.Context) error {
	// The newest message must not hide what the server has lost meanwhile.
	if p.o.Conn.Stats().Reconnects != p.reconnects {
		return errReconnected
	}
	if p.sent < len(p.queue) && p.last > p.fence+fenceSpan {
		if p.sent > 0 {
			return nil
		}
		if err := p.writeNode(ctx, ofAgent, pleg.Event{ObservedAt: time.Now()}); err != nil {
			return err
		}
	}
	header := nats.Header{
		"Content-Type":                                {contentType},
		jetstream.ExpectedLastSubjSeqHeader:           {strconv.FormatUint(p.fence, 10)},
		"Nats-Expected-Last-Subject-Sequence-Subject": {p.node},
	}
	noRetry := jetstream.WithRetryAttempts(0) // it would change the order
	for ; p.sent < min(p.window(), len(p.queue)); p.sent++ {
		o := &p.queue[p.sent]
		header[jetstream.MsgIDHeader] = []string{o.id}
		var err error
		if o.ack, err = p.js.PublishMsgAsync(&nats.Msg{Subject: o.subject, Data: o.body, Header: header}, noRetry); err != nil {
			return p.failed(err)
		}
	}
	return nil
}

// flush returns once all messages are acknowledged.
func (p *Publisher) flush(ctx context.Context) error {
	for {
		if err := p.transmit(ctx); err != nil {
			return err
		}
		if len(p.queue) == 0 {
			break
		}
		ok, failed := p.answer()
		select {
		case ack := <-ok:
			p.acknowledged(ack)
		case err := <-failed:
			return p.failed(err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if p.gap == nil {
		p.loop.Works(ctx)
	}
	return nil
}

// answer returns where the answer to the first message of the queue comes; nil if it is not sent.
func (p *Publisher) answer() (<-chan *jetstream.PubAck, <-chan error) {
	if p.sent == 0 {
		return nil, nil
	}
	return p.queue[0].ack.Ok(), p.queue[0].ack.Err()
}

func (p *Publisher) failed(err error) error { return fmt.Errorf("publish: %w", explain(p.o.Conn, err)) }

// acknowledged notes that the server has the first message of the queue.
func (p *Publisher) acknowledged(ack *jetstream.PubAck) {
	now, o := time.Now(), p.queue[0]
	p.queue, p.sent = p.queue[1:], p.sent-1
	bodies.Put(o.body[:0]) //nolint:staticcheck // a slice is small beside what it saves
	o.record.stored, p.last = now, max(p.last, ack.Sequence)
	if o.kind == ofEvent {
		p.metrics.published.Inc()
		p.metrics.lag.Observe(now.Sub(o.observedAt).Seconds())
	}
	p.loop.Acknowledged()
}

// writeNode publishes the message about the node that the next messages name, as the successor of
// the message that they named so far.
func (p *Publisher) writeNode(ctx context.Context, k kind, ev pleg.Event) error {
	_, o, err := encode(nil, p.source, k, &ev, inner(&ev))
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	body := append(o.text("agent", p.agent), "}}"...)
	expected := p.fence
	p.fence = 0 // until it is known
	ack, err := p.js.PublishMsg(ctx, &nats.Msg{Subject: p.node, Data: body, Header: nats.Header{"Content-Type": {contentType}}},
		jetstream.WithExpectLastSequencePerSubject(expected))
	if err != nil {
		return p.failed(err)
	}
	p.fence, p.fenced, p.last = ack.Sequence, time.Now(), max(p.last, ack.Sequence)
	p.loop.Acknowledged()
	return nil
}
