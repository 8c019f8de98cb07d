package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// run publishes the events until an error occurs or the channel is closed.
func (p *Publisher) run(ctx context.Context, events <-chan pleg.Event) error {
	beat := time.NewTicker(p.beatPeriod())
	defer beat.Stop()
	if err := p.flush(ctx); err != nil {
		return err
	}
	for {
		// Before anything else is written: then the newest message no longer shows what is lost.
		if p.o.Conn.Stats().Reconnects != p.reconnects {
			return errReconnected
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return errors.Join(ctx.Err(), exporter.ErrSourceEnded)
			}
			if err := p.publishAll(ctx, ev, events); err != nil {
				return err
			}
		case <-beat.C:
			if err := p.beat(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// messagePause is the time from some messages to the next ones, unless many events wait: then those of
// a pod that starts are sent together. An event is sent at once if the last one is older.
const messagePause = 20 * time.Millisecond

// publishAll publishes an event and those that wait behind it, up to a bound.
func (p *Publisher) publishAll(ctx context.Context, ev pleg.Event, events <-chan pleg.Event) error {
	if pause := messagePause - time.Since(p.published); pause > 0 && len(events) < exporter.Buffer/2 {
		if err := backoff.Wait(ctx, pause); err != nil {
			return err
		}
	}
	defer func() { p.published = time.Now() }()
	p.batch = nil
	accept := func(ev pleg.Event) error { return p.accept(ctx, ev) }
	more := func() bool { return len(p.batch) < exporter.Buffer }
	if err := exporter.Gather(ev, events, accept, more); err != nil {
		return err
	}
	return p.publishBatch(ctx)
}

// accept adds an event to the batch or to the present state, or acts on a mark.
func (p *Publisher) accept(ctx context.Context, ev pleg.Event) error {
	if fit(&ev) {
		p.cut(ctx, &ev, "a name or an id is too long to publish")
	}
	switch {
	case ev.Type == pleg.Bookmark:
		p.currentAsOf = ev.ObservedAt
	case ev.Type == pleg.Gap:
		if err := p.publishBatch(ctx); err != nil {
			return err
		}
		p.beginReplay(ev)
	case ev.Type == pleg.Synced && p.gap != nil:
		return p.publishReplay(ctx, ev)
	case ev.Type == pleg.Synced:
	case p.gap != nil:
		p.record(&ev).apply(ev)
	default:
		last := p.at
		if n := len(p.batch); n > 0 {
			last.Seq = p.batch[n-1].Seq
		}
		isNew, err := exporter.IsNew(&ev, last)
		if isNew {
			p.batch = append(p.batch, ev)
		}
		p.replay = p.replay || err != nil
		return err
	}
	return nil
}

func (p *Publisher) record(ev *pleg.Event) *record {
	r, ok := p.pods[ev.PodUID]
	if !ok {
		r = &record{name: ev.PodName, namespace: ev.PodNamespace}
		p.pods[ev.PodUID] = r
	}
	return r
}

// outgoing is a message that is not acknowledged.
type outgoing struct {
	pleg.Event

	kind    kind
	subject string
	body    []byte
	record  *record
}

// publishBatch publishes the events of the batch, each with its pod as it is then.
func (p *Publisher) publishBatch(ctx context.Context) error {
	fresh := make(map[*record]bool)
	for _, ev := range p.batch {
		if r := p.record(&ev); !fresh[r] {
			fresh[r] = true
			if err := p.readStatus(ctx, ev.PodUID, r); err != nil {
				return err
			}
		}
	}
	for _, ev := range p.batch {
		r := p.record(&ev)
		r.apply(ev)
		if err := p.enqueue(ctx, ofEvent, ev, r); err != nil {
			return err
		}
		p.at = pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	}
	for _, ev := range p.batch {
		if r := p.pods[ev.PodUID]; r != nil && len(r.Events) == 0 {
			delete(p.pods, ev.PodUID)
		}
	}
	p.batch = nil
	return p.flush(ctx)
}

func (p *Publisher) readStatus(ctx context.Context, uid pleg.PodUID, r *record) error {
	status, err := p.o.Source.Status(ctx, uid)
	if err != nil && !errors.As(err, new(*pleg.InspectionError)) {
		return fmt.Errorf("read pod status: %w", err)
	}
	if err := r.setStatus(status, err); err != nil {
		return fmt.Errorf("encode status of pod %s: %w", uid, err)
	}
	return nil
}

// enqueue makes the message about a pod.
func (p *Publisher) enqueue(ctx context.Context, k kind, ev pleg.Event, r *record) error {
	body, cut, err := encodePod(p.source, k, ev, &r.podState, p.maxMessage())
	if err != nil {
		return fmt.Errorf("encode pod %s: %w", ev.PodUID, err)
	}
	if cut != "" {
		p.cut(ctx, &ev, cut)
	}
	p.queue = append(p.queue, outgoing{ev, k, podSubject(p.o.Cluster, p.o.Node, ev.PodUID), body, r})
	return nil
}

// enqueueState makes the message with the state of a pod.
func (p *Publisher) enqueueState(ctx context.Context, uid pleg.PodUID, r *record, at pleg.Position) error {
	if len(r.Events) > 0 {
		if err := p.readStatus(ctx, uid, r); err != nil {
			return err
		}
	}
	return p.enqueue(ctx, ofState, pleg.Event{
		PodUID: uid, PodName: r.name, PodNamespace: r.namespace, Epoch: at.Epoch, Seq: at.Seq, ObservedAt: time.Now(),
	}, r)
}

// maxMessage is the size of a message that the server accepts, less its headers.
func (p *Publisher) maxMessage() int { return int(p.o.Conn.MaxPayload()) - 1024 }

// fenceSpan is the number of messages after which the node's own message is written again: the server
// looks for it with each message, and has the newest ones in memory.
const fenceSpan = 20_000

// flush publishes the queue and waits until everything is acknowledged. One server gets all messages
// without waiting for each: if it refuses one for the fence, then also those behind it. Several
// servers refuse a message that names the same fence as one that they have not stored yet.
func (p *Publisher) flush(ctx context.Context) error {
	if len(p.queue) > 0 && p.last.seq > p.fence+fenceSpan {
		if err := p.writeNode(ctx, p.nodeKind(), pleg.Event{}); err != nil {
			return err
		}
	}
	window := len(p.queue)
	if p.stream.CachedInfo().Config.Replicas > 1 {
		window = 1
	}
	for len(p.queue) > 0 {
		if err := p.send(ctx, slices.Clone(p.queue[:min(window, len(p.queue))])); err != nil {
			err = explain(p.o.Conn, err)
			p.refused = p.refused || isRefused(err) && !errors.Is(err, errReplaced)
			return fmt.Errorf("publish: %w", err)
		}
	}
	return nil
}

// send publishes the first messages of the queue, and removes those that are acknowledged.
func (p *Publisher) send(ctx context.Context, messages []outgoing) (err error) {
	acks := make([]jetstream.PubAckFuture, len(messages))
	for i, o := range messages {
		m := nats.NewMsg(o.subject)
		m.Data = o.body
		m.Header.Set("Content-Type", contentType)
		if o.kind == ofEvent {
			m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s/%s/%d", p.o.Node, o.Epoch, o.Seq))
		}
		acks[i], err = p.js.PublishMsgAsync(m, jetstream.WithExpectLastSequenceForSubject(p.fence, p.nodeSubject()),
			jetstream.WithRetryAttempts(0), jetstream.WithStallWait(p.o.PublishTimeout))
		if err != nil {
			return err
		}
	}
	timeout := time.NewTimer(p.o.PublishTimeout)
	defer timeout.Stop()
	for i, o := range messages {
		select {
		case ack := <-acks[i].Ok():
			p.queue = p.queue[1:]
			p.acknowledged(o, ack.Sequence)
			timeout.Reset(p.o.PublishTimeout)
			continue
		case err = <-acks[i].Err():
		case <-timeout.C:
			err = nats.ErrTimeout
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		return err
	}
	p.loop.Works(ctx)
	return nil
}

// acknowledged notes that the server has a message.
func (p *Publisher) acknowledged(o outgoing, seq uint64) {
	now := time.Now()
	o.record.last = sent{o.subject, seq, now}
	if seq > p.last.seq {
		p.last = o.record.last
	}
	if o.kind == ofEvent {
		p.acked = pleg.Position{Epoch: o.Epoch, Seq: o.Seq}
		p.metrics.published.Inc()
		p.metrics.lag.Observe(now.Sub(o.ObservedAt).Seconds())
	}
	p.loop.Acknowledged()
}
