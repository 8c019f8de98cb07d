package fleet

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// session is what the loop of a publisher knows. A session begins with a message about the node,
// which refuses whatever another agent, or an earlier session, still has under way: each message
// names the sequence number of the node's own one. It ends with the first error.
//
// After a restart of the server a whole fleet comes back at once. What an agent knew before is then
// still true, except for what was not acknowledged. So it asks for that alone. Otherwise it
// reads the last message of each of its pods.
type session struct {
	*store        // nil unless the stream is open
	agents *store // AgentBucket
	// known is true if what follows may still be true of the server.
	known bool
	// owned is true once this publisher has published as its node.
	owned bool
	// lease is the revision of this agent's value in AgentBucket, renewed when it was written, and
	// health what is in it.
	lease   uint64
	renewed time.Time
	health

	// fence is the sequence number of the node's own message, 0 if that is not known, and fenced
	// when it was written. begun is true if it says that states are being replaced.
	fence  uint64
	fenced time.Time
	begun  bool
	// last is the newest message that the server acknowledged.
	last sent
	// at is the position of the last event in queue, or that was acknowledged: that is acked.
	at, acked pleg.Position
	pods      map[pleg.PodUID]*record
	// strays are pods that the server has and the present state may not.
	strays map[pleg.PodUID]*record
	// batch are events of which no message has been made, queue messages that are not acknowledged.
	batch []pleg.Event
	queue []outgoing
	// refused is true if the server has refused a message of queue for itself, such as for its size: it
	// may have those behind it.
	refused bool
	// gap is not nil while the present state is being replayed: it is published at its end.
	gap *pleg.Event
	// replay makes the next session begin with the present state.
	replay bool

	// reconnects counts those of the connection before the session began.
	reconnects  uint64
	currentAsOf time.Time
	// published is when the last messages were acknowledged.
	published time.Time
}

// record is what the publisher knows of a pod.
type record struct {
	podState

	name, namespace string
	last            sent
}

// sent is a message that the server has acknowledged.
type sent struct {
	subject string
	seq     uint64
	at      time.Time
}

var (
	errLost = errors.New("the server has lost what it acknowledged")
	errHole = errors.New("the server has not accepted an event, but a later one")
)

// publishOnce publishes until an error occurs, or the connection is made again after a loss.
func (p *Publisher) publishOnce(ctx context.Context) error {
	connected, stop := untilReconnected(ctx, p.o.Conn)
	defer stop()
	p.reconnects, p.currentAsOf = p.o.Conn.Stats().Reconnects, time.Time{}
	err := p.takeOver(connected)
	if err == nil {
		var after *pleg.Position // nil for the present state
		if p.gap == nil {
			after = new(p.at)
		}
		follow := func(ctx context.Context, events chan<- pleg.Event) error {
			return p.o.Source.Follow(ctx, after, events)
		}
		err = exporter.Session(connected, follow, p.run)
		if ctx.Err() != nil || errors.Is(err, exporter.ErrSourceEnded) {
			p.release(context.WithoutCancel(ctx))
		}
		p.known = p.fence > 0 && p.gap == nil && !p.replay && !errors.Is(err, errReplaced)
	} else if isRefused(err) || errors.Is(err, errHeld) || errors.Is(err, errLost) || p.replay || p.fence == 0 {
		p.known = false
	}
	return cmp.Or(context.Cause(connected), err)
}

// takeOver makes this publisher the one of its node, and finds out what the node has published.
func (p *Publisher) takeOver(ctx context.Context) (err error) {
	if !p.known {
		p.fence = 0
		if p.store, err = openStream(ctx, p.js, p.o.Cluster, &p.o.Limits); err != nil {
			return err
		}
		if p.agents, err = openBucket(ctx, p.js, nil); err != nil {
			return err
		}
		if n := p.stream.CachedInfo().Config.Replicas; n < 3 && !p.owned {
			p.log.WarnContext(ctx, "fewer than 3 servers keep the events: a power failure may lose some", "replicas", n)
		}
	}
	if err := p.takeLease(ctx); err != nil {
		return err
	}
	p.owned = true
	if p.known {
		return p.resume(ctx)
	}
	return p.readServer(ctx)
}

func (p *Publisher) nodeSubject() string { return podSubject(p.o.Cluster, p.o.Node, "") }

// readServer reads the last message of each pod of the node. The session begins with the present
// state, unless these are complete.
func (p *Publisher) readServer(ctx context.Context) error {
	own, err := p.message(ctx, wanted{Last: p.nodeSubject()})
	if err != nil {
		return err
	}
	p.begun, p.gap, p.batch, p.queue = true, nil, nil, nil
	p.replay, p.refused = p.replay || p.refused, false
	p.pods, p.strays = make(map[pleg.PodUID]*record), make(map[pleg.PodUID]*record)
	p.at = pleg.Position{}
	if own != nil {
		m, err := decode(own.Data)
		p.begun = err != nil || m.kind == ofBegin
		p.fence = own.Sequence
	}
	if err := p.writeNode(ctx, p.nodeKind(), pleg.Event{}); err != nil {
		return err
	}
	if own != nil {
		if _, err := p.snapshot(ctx, subjectsOf(p.o.Cluster, []string{p.o.Node}), func(m *stored) error { p.readOwn(ctx, m); return nil }); err != nil {
			return err
		}
	}
	p.acked = p.at
	if p.begun || p.replay || p.at.Epoch == "" {
		p.beginReplay(pleg.Event{Type: pleg.Gap, Reason: pleg.OtherEpoch})
	}
	return nil
}

// readOwn notes what the server has of a pod. If it cannot be read, the session begins with the present
// state.
func (p *Publisher) readOwn(ctx context.Context, m *stored) {
	if m.Subject == p.nodeSubject() {
		return
	}
	last := sent{m.Subject, m.Sequence, m.Time}
	decoded, err := decode(m.Data)
	if err != nil {
		p.log.WarnContext(ctx, "cannot read the last message of a pod", "subject", m.Subject, "err", err)
		if uid, err := nodeOf(m.Subject, podPlace); err == nil {
			p.strays[pleg.PodUID(uid)] = &record{last: last}
		}
		p.replay = true
		return
	}
	p.at = pleg.Position{Epoch: decoded.Epoch, Seq: decoded.Seq}
	if delete(p.pods, decoded.PodUID); !decoded.Pod.Gone {
		p.pods[decoded.PodUID] = &record{*decoded.Pod, decoded.PodName, decoded.PodNamespace, last}
	}
}

// beginReplay makes what follows the present state, before a Gap.
func (p *Publisher) beginReplay(gap pleg.Event) {
	p.gap = &gap
	maps.Copy(p.strays, p.pods)
	p.pods = make(map[pleg.PodUID]*record)
}

// resume finds out which messages the server has of those that it has not acknowledged. It is an
// error if it lost what it had acknowledged, or has a message without the one before it. The next
// session then reads everything.
func (p *Publisher) resume(ctx context.Context) error {
	newest := p.last
	if err := p.writeNode(ctx, p.nodeKind(), pleg.Event{}); err != nil {
		return err
	}
	if newest.subject != p.nodeSubject() {
		m, err := p.message(ctx, wanted{Last: newest.subject})
		if err != nil {
			return err
		}
		if m == nil || m.Sequence < newest.seq {
			return errLost
		}
	}
	landed := make(map[string]*stored)
	for _, o := range p.queue {
		landed[o.subject] = nil
	}
	answers, asking := make(chan *stored, len(landed)), new(errgroup.Group)
	asking.SetLimit(mostAtOnce)
	for subject := range landed {
		asking.Go(func() error {
			m, err := p.message(ctx, wanted{Last: subject})
			answers <- m
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		return err
	}
	close(answers)
	for m := range answers {
		if m != nil {
			landed[m.Subject] = m
		}
	}
	return p.settle(landed)
}

// mostAtOnce are the messages that are read at the same time: the server may be a second away.
const mostAtOnce = 16

// settle removes from the queue what the server has, by the last messages of the pods.
func (p *Publisher) settle(landed map[string]*stored) error {
	var missing []outgoing
	for _, o := range p.queue {
		has := false
		if m := landed[o.subject]; m != nil {
			decoded, err := decode(m.Data)
			has = err == nil && decoded.Epoch == o.Epoch && decoded.Seq >= o.Seq
		}
		switch {
		case o.kind != ofEvent: // it will be due again
		case has && len(missing) > 0:
			p.replay = true
			return errHole
		case has:
			p.acknowledged(o, landed[o.subject].Sequence)
		default:
			missing = append(missing, o)
		}
	}
	p.queue, p.refused = missing, false
	return nil
}
