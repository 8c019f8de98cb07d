package fleet

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// begin makes this publisher the publisher of its node, and finds out which pods the server has.
func (p *Publisher) begin(ctx context.Context) (err error) {
	if p.store, err = openStream(ctx, p.js, &p.patience, p.o.Cluster, &p.o.Limits); err != nil {
		return err
	}
	if p.agents, err = openBucket(ctx, p.js, &p.patience, &p.o.Limits); err != nil {
		return err
	}
	if n := p.stream.CachedInfo().Config.Replicas; n < 3 && !p.owned {
		p.log.WarnContext(ctx, "fewer than 3 servers keep the events: a power failure may lose some", "replicas", n)
	}
	if err := p.takeLease(ctx, p.examine(ctx)); err != nil {
		return err
	}
	p.owned, p.queue, p.at, p.last, p.pods, p.replaying = true, nil, pleg.Position{}, 0, make(map[string]*record), true
	if p.fence, err = p.lastSequence(ctx, p.node); err != nil {
		return err
	}
	if err := p.beginReplay(ctx, pleg.Event{Reason: pleg.OtherEpoch, ObservedAt: time.Now()}); err != nil {
		return err
	}
	all := allOf(p.o.Cluster, p.o.Node)
	info, err := p.info(ctx, jetstream.WithSubjectFilter(all[0]))
	if err != nil || len(info.State.Subjects) == 1 { // only the Gap
		return err
	}
	_, err = p.snapshot(ctx, all, func(m *stored) {
		of, err := decode(m.Data)
		switch {
		case m.Subject == p.node || err == nil && of.Pod != nil && of.Pod.Gone:
			delete(p.pods, m.Subject)
		case err != nil:
			p.log.WarnContext(ctx, "cannot read the last message of a pod", "subject", m.Subject, "err", err)
			fallthrough
		default:
			p.pods[m.Subject] = &record{uid: of.PodUID, name: of.PodName, namespace: of.PodNamespace}
		}
	})
	return err
}

// beginReplay publishes a Gap. What follows is the present state; pods that it does not have are gone.
func (p *Publisher) beginReplay(ctx context.Context, gap pleg.Event) error {
	if err := p.writeNode(ctx, ofGap, gap); err != nil {
		return err
	}
	p.replaying = true
	for subject, r := range p.pods {
		p.pods[subject] = &record{uid: r.uid, name: r.name, namespace: r.namespace}
	}
	return nil
}

// publishReplay publishes the states of all pods, and that others are gone, and then that they are complete.
func (p *Publisher) publishReplay(ctx context.Context, synced pleg.Event) error {
	p.at = pleg.Position{Epoch: synced.Epoch, Seq: synced.Seq}
	for subject, r := range p.pods {
		p.enqueueState(ctx, subject, r)
		if r.gone() {
			delete(p.pods, subject)
		}
	}
	if err := p.writeNode(ctx, ofSynced, synced); err != nil {
		return err
	}
	p.replaying = false
	p.works(ctx)
	return nil
}

// enqueueState makes the message with the state of a pod.
func (p *Publisher) enqueueState(ctx context.Context, subject string, r *record) {
	ev := pleg.Event{PodUID: r.uid, PodName: r.name, PodNamespace: r.namespace, Epoch: p.at.Epoch, Seq: p.at.Seq, ObservedAt: time.Now()}
	p.enqueue(ctx, ofState, subject, &ev, inner(&ev), r)
}

// fenceSpan is the number of messages after which the node's own message is written again: the
// server looks for it with each message, and has the newest messages in memory.
const fenceSpan = 20_000

// refresh publishes the message about the node again before the server has to look long for it, and
// what had no message for half of the age at which the server removes it.
func (p *Publisher) refresh(ctx context.Context) error {
	if p.replaying {
		return nil
	}
	age := p.stream.CachedInfo().Config.MaxAge
	old := func(at time.Time) bool { return age > 0 && time.Since(at) > age/2 }
	if old(p.fenced) || p.last > p.fence+fenceSpan {
		if err := p.writeNode(ctx, ofAgent, pleg.Event{ObservedAt: time.Now()}); err != nil {
			return err
		}
	}
	most := 1 + int(4*time.Duration(len(p.pods))*beatPeriod/max(age, 1)) // they may all be of one time
	for subject, r := range p.pods {
		if most > 0 && old(r.stored) {
			most--
			p.enqueueState(ctx, subject, r)
		}
	}
	return p.flush(ctx)
}
