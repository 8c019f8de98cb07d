package fleet

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// publishReplay writes the states of all pods, removes those of pods that are gone, and
// then publishes the Gap: who reads it finds the states complete.
func (s *session) publishReplay(ctx context.Context, synced pleg.Event) error {
	gap := *s.gap
	if gap.Epoch != synced.Epoch { // no pod was replayed
		s.pods = make(map[pleg.PodUID]*podRecord)
	}
	gap.Epoch, gap.Seq, gap.ObservedAt = synced.Epoch, synced.Seq, synced.ObservedAt
	strays := maps.Clone(s.revisions)
	delete(strays, s.key)
	var writes []write
	for uid, r := range s.pods {
		w, err := s.stateOf(ctx, uid, r)
		if err != nil {
			return err
		}
		delete(strays, w.key)
		writes = append(writes, w)
	}
	for key, r := range strays {
		writes = append(writes, write{key: key, revision: r.sequence})
	}
	if err := s.write(ctx, writes); err != nil {
		return err
	}
	s.node = nodeState{Epoch: gap.Epoch, Seq: gap.Seq}
	if err := s.writeNode(ctx); err != nil {
		return err
	}
	s.p.metrics.gaps.Inc()
	if err := s.publish(ctx, []eventData{{Event: gap}}); err != nil {
		return err
	}
	s.gap = nil
	return nil
}

// publishBatch writes the states of the pods in the batch and then publishes the events.
func (s *session) publishBatch(ctx context.Context) error {
	batch := s.batch
	s.batch = nil
	if len(batch) == 0 {
		return nil
	}
	changed := make(map[pleg.PodUID]*podRecord)
	s.unsettled = make(map[string]pleg.PodUID)
	for _, ev := range batch {
		r := s.record(ev)
		if ev.Epoch == r.Epoch && ev.Seq <= r.Seq {
			continue // an earlier session wrote the state but could not publish
		}
		r.apply(ev)
		changed[ev.PodUID] = r
		s.unsettled[podKey(s.p.o.Cluster, s.p.o.Node, r.Namespace, ev.PodUID)] = ev.PodUID
	}
	writes, err := s.statesOf(ctx, changed)
	if err != nil {
		return err
	}
	if err := s.write(ctx, writes); err != nil {
		return err
	}
	data := make([]eventData, len(batch))
	for i, ev := range batch {
		data[i] = eventData{Event: ev, Labels: s.pods[ev.PodUID].Labels}
	}
	if err := s.publish(ctx, data); err != nil {
		return err
	}
	s.unsettled = nil
	for uid := range changed {
		if len(s.pods[uid].last) == 0 {
			delete(s.pods, uid)
		}
	}
	return nil
}

// publish publishes events in as few messages as the size of a message allows, each as
// the successor of the one before.
func (s *session) publish(ctx context.Context, events []eventData) error {
	for len(events) > 0 {
		body, n, err := s.body(events)
		if err != nil {
			return fmt.Errorf("encode events: %w", err)
		}
		m := nats.NewMsg(s.subject)
		m.Data = body
		m.Header.Set("Content-Type", contentType)
		last := events[n-1]
		s.sent, s.sentTo = body, pleg.Position{Epoch: last.Epoch, Seq: last.Seq}
		waiting, cancel := context.WithTimeout(ctx, s.p.o.PublishTimeout)
		ack, err := s.js.PublishMsg(waiting, m, jetstream.WithExpectLastSequencePerSubject(s.last))
		cancel()
		if err != nil {
			return fmt.Errorf("publish events: %w", explain(s.p.o.Conn, err))
		}
		s.last, s.p.acked, s.sent = ack.Sequence, s.sentTo, nil
		s.p.loop.Acknowledged()
		s.progress(ctx)
		s.p.metrics.published.Add(float64(n))
		for _, ev := range events[:n] {
			s.p.metrics.lag.Observe(time.Since(ev.ObservedAt).Seconds())
		}
		events = events[n:]
	}
	return nil
}

// body returns a message with the first n events.
func (s *session) body(events []eventData) (body []byte, n int, err error) {
	const usual = 600 // bytes of an event
	body = append(make([]byte, 0, min(s.maxMessage(), usual*len(events))), '[')
	for n < len(events) {
		one, err := s.encoder.event(events[n])
		if err != nil {
			return nil, 0, err
		}
		if n > 0 && len(body)+len(one)+2 > s.maxMessage() {
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
