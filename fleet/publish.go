package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// run publishes the events until an error occurs or the channel is closed.
func (p *Publisher) run(ctx context.Context, events <-chan pleg.Event) error {
	beat := time.NewTicker(min(beatPeriod, p.o.StateTTL/8))
	defer beat.Stop()
	for {
		// Before anything else is written: then the newest write no longer shows what is lost.
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

// messagePause is the time from one message to the next, unless many events wait: the two
// answers of the server are most of what a message costs. An event is sent at once if the
// last message is older. Without the pause, publishing takes twice the CPU.
const messagePause = 20 * time.Millisecond

// publishAll publishes an event and those that wait behind it, up to a bound.
func (p *Publisher) publishAll(ctx context.Context, ev pleg.Event, events <-chan pleg.Event) error {
	if pause := messagePause - time.Since(p.published); pause > 0 && len(events) < exporter.Buffer/2 {
		if err := backoff.Wait(ctx, pause); err != nil {
			return err
		}
	}
	defer func() { p.published = time.Now() }()
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
		p.cut(ctx, ev.PodNamespace, ev.PodName, "a name or an id is too long to publish")
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
	case ev.Missed > 0:
		return exporter.ErrOverrun
	case p.gap != nil:
		p.state(ev).apply(ev)
	default:
		return p.addToBatch(ev)
	}
	return nil
}

func (p *Publisher) state(ev pleg.Event) *podState {
	s, ok := p.pods[ev.PodUID]
	if !ok {
		s = &podState{}
		p.pods[ev.PodUID] = s
	}
	return s
}

// addToBatch adds a new event. If it does not follow the last one, that is an error, and
// the next session begins with the present state.
func (p *Publisher) addToBatch(ev pleg.Event) error {
	last := p.acked
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

// publishReplay writes the states of all pods, removes those of pods that are gone, and
// then publishes the Gap: its readers find the states complete.
func (p *Publisher) publishReplay(ctx context.Context, synced pleg.Event) error {
	gap := *p.gap
	gap.Epoch, gap.Seq, gap.ObservedAt = synced.Epoch, synced.Seq, synced.ObservedAt
	p.node = nodeState{Epoch: gap.Epoch, Seq: gap.Seq, After: p.last}
	if err := p.writeAll(ctx); err != nil {
		return err
	}
	p.metrics.gaps.Inc()
	if err := p.publish(ctx, []eventData{{Event: gap}}); err != nil {
		return err
	}
	p.gap = nil
	return nil
}

// publishBatch writes the states of the pods in the batch and then publishes the events.
func (p *Publisher) publishBatch(ctx context.Context) error {
	if len(p.batch) == 0 {
		return nil
	}
	changed := make(map[pleg.PodUID]*podState)
	for _, ev := range p.batch {
		s := p.state(ev)
		if ev.Epoch == s.Epoch && ev.Seq <= s.Seq {
			continue // an earlier session wrote the state but could not publish
		}
		s.apply(ev)
		changed[ev.PodUID] = s
	}
	if err := p.writeStates(ctx, changed); err != nil {
		return err
	}
	data := make([]eventData, len(p.batch))
	for i, ev := range p.batch {
		data[i] = eventData{Event: ev, Labels: p.pods[ev.PodUID].Labels}
	}
	if err := p.publish(ctx, data); err != nil {
		return err
	}
	p.batch = nil
	for uid, s := range changed {
		if len(s.Events) == 0 {
			delete(p.pods, uid)
		}
	}
	return nil
}

// publish publishes events in as few messages as the size of a message allows, each as
// the successor of the one before.
func (p *Publisher) publish(ctx context.Context, events []eventData) error {
	for len(events) > 0 {
		body, n, err := p.body(events)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		m := nats.NewMsg(p.ownSubject())
		m.Data = body
		m.Header.Set("Content-Type", contentType)
		p.sent = body
		waiting, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
		ack, err := p.js.PublishMsg(waiting, m, jetstream.WithExpectLastSequencePerSubject(p.last))
		cancel()
		if err != nil {
			return fmt.Errorf("publish events: %w", explain(p.o.Conn, err))
		}
		last := events[n-1]
		p.last, p.acked, p.sent = ack.Sequence, pleg.Position{Epoch: last.Epoch, Seq: last.Seq}, nil
		p.loop.Acknowledged()
		p.accepted(ctx)
		p.metrics.published.Add(float64(n))
		for _, ev := range events[:n] {
			p.metrics.lag.Observe(time.Since(ev.ObservedAt).Seconds())
		}
		events = events[n:]
	}
	return nil
}

func (p *Publisher) ownSubject() string { return p.eventSubject(p.o.Cluster, p.o.Node) }

// body returns a message with the first n events.
func (p *Publisher) body(events []eventData) (body []byte, n int, err error) {
	const usual = 600 // bytes of an event
	source := ceSource(p.o.Cluster, p.o.Node)
	body = append(make([]byte, 0, min(p.maxMessage(), usual*len(events))), '[')
	for n < len(events) {
		one, err := encodeEvent(source, events[n])
		if err != nil {
			return nil, 0, err
		}
		if n > 0 && len(body)+len(one)+2 > p.maxMessage() {
			break
		}
		if n > 0 {
			body = append(body, ',')
		}
		body = append(body, one...)
		n++
	}
	return append(body, ']'), n, nil
}

// maxMessage is the size of a message that the server accepts, less its headers.
func (p *Publisher) maxMessage() int { return int(p.o.Conn.MaxPayload()) - 1024 }
