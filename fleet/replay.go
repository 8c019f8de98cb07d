package fleet

import (
	"context"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// begin makes this publisher the publisher of its node, and finds out which pods the server has.
func (p *Publisher) begin(ctx context.Context) (err error) {
	if p.store, err = openStream(ctx, p.js, p.o.Cluster, &p.o.Limits); err != nil {
		return err
	}
	if p.agents, err = openBucket(ctx, p.js, nil); err != nil {
		return err
	}
	if n := p.stream.CachedInfo().Config.Replicas; n < 3 && !p.owned {
		p.log.WarnContext(ctx, "fewer than 3 servers keep the events: a power failure may lose some", "replicas", n)
	}
	if err := p.takeLease(ctx); err != nil {
		return err
	}
	p.owned, p.queue, p.at, p.last = true, nil, pleg.Position{}, 0
	own, err := p.lastSequence(ctx, p.node)
	if err != nil {
		return err
	}
	p.fence = own
	if err := p.writeNode(ctx, ofAgent, pleg.Event{ObservedAt: time.Now()}); err != nil {
		return err
	}
	p.pods, p.strays = make(map[pleg.PodUID]*record), make(map[string]pleg.Event)
	_, err = p.snapshot(ctx, requestTimeout, allOf(p.o.Cluster, p.o.Node), func(m *stored) {
		of, err := decode(m.Data)
		switch {
		case m.Subject == p.node || err == nil && of.Pod != nil && of.Pod.Gone:
			delete(p.strays, m.Subject)
		case err != nil:
			p.log.WarnContext(ctx, "cannot read the last message of a pod", "subject", m.Subject, "err", err)
			fallthrough
		default:
			p.strays[m.Subject] = of.Event
		}
	})
	p.beginReplay(pleg.Event{Type: pleg.Gap, Reason: pleg.OtherEpoch})
	return err
}

// beginReplay makes what follows the present state, before a Gap.
func (p *Publisher) beginReplay(gap pleg.Event) {
	p.gap = &gap
	for uid, r := range p.pods {
		p.strays[podSubject(p.o.Cluster, p.o.Node, uid)] = pleg.Event{PodUID: uid, PodName: r.name, PodNamespace: r.namespace}
	}
	p.pods = make(map[pleg.PodUID]*record)
}

// publishReplay publishes the states of all pods, and that others are gone, and then the Gap: its
// readers find the states complete.
func (p *Publisher) publishReplay(ctx context.Context, synced pleg.Event) error {
	gap := *p.gap
	gap.Epoch, gap.Seq, gap.ObservedAt = synced.Epoch, synced.Seq, synced.ObservedAt
	p.at = pleg.Position{Epoch: synced.Epoch, Seq: synced.Seq}
	for uid, r := range p.pods {
		if r.gone() { // it has come and gone
			delete(p.pods, uid)
			continue
		}
		delete(p.strays, podSubject(p.o.Cluster, p.o.Node, uid))
		if err := p.enqueueState(ctx, uid, r); err != nil {
			return err
		}
	}
	for subject, ev := range p.strays {
		ev.Epoch, ev.Seq, ev.ObservedAt = p.at.Epoch, p.at.Seq, time.Now()
		if err := p.enqueue(ctx, ofState, subject, &ev, inner(&ev), &record{}); err != nil {
			return err
		}
	}
	if err := p.flush(ctx); err != nil {
		return err
	}
	if err := p.writeNode(ctx, ofGap, gap); err != nil {
		return err
	}
	p.gap = nil
	clear(p.strays)
	p.loop.Works(ctx)
	return nil
}

// enqueueState makes the message with the state of a pod.
func (p *Publisher) enqueueState(ctx context.Context, uid pleg.PodUID, r *record) error {
	ev := pleg.Event{PodUID: uid, PodName: r.name, PodNamespace: r.namespace, Epoch: p.at.Epoch, Seq: p.at.Seq, ObservedAt: time.Now()}
	return p.enqueue(ctx, ofState, podSubject(p.o.Cluster, p.o.Node, uid), &ev, inner(&ev), r)
}

// refresh publishes some states again that had no message for half of the age at which the server
// removes them.
func (p *Publisher) refresh(ctx context.Context) error {
	age := p.stream.CachedInfo().Config.MaxAge
	if p.gap != nil || age == 0 {
		return nil
	}
	if time.Since(p.fenced) > age/2 {
		if err := p.writeNode(ctx, ofAgent, pleg.Event{ObservedAt: time.Now()}); err != nil {
			return err
		}
	}
	most := 1 + int(4*time.Duration(len(p.pods))*beatPeriod/age) // they may all be of one time
	for uid, r := range p.pods {
		if most > 0 && time.Since(r.stored) > age/2 {
			most--
			if err := p.enqueueState(ctx, uid, r); err != nil {
				return err
			}
		}
	}
	return p.flush(ctx)
}
