package fleet

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// session is what the loop of a publisher knows. Each session ends with an error. The next session
// sends again what was not acknowledged, and the server passes over what it has. If the server
// refused something or lost it, and in a new process, it begins with a message about the node: each
// later one names its sequence number, so that the server refuses whatever another agent, or an
// earlier session, still has under way. Then come the present state and a Gap.
type session struct {
	*store        // nil until the stream is open
	agents *store // AgentBucket
	// owned is true once this publisher has published as its node.
	owned   bool
	renewed time.Time // the lease
	health

	// fence is the sequence number of the node's own message, and fenced when it was written. If it is
	// 0, the next session begins with the present state.
	fence  uint64
	fenced time.Time
	// last is the sequence number of the newest message that the server acknowledged.
	last uint64
	// at is the position of the last event of which a message has been made.
	at   pleg.Position
	pods map[pleg.PodUID]*record
	// strays are pods that the server has and the present state may not, by their subjects.
	strays map[string]pleg.Event
	// gap is not nil while the present state is being replayed: it is published at its end.
	gap *pleg.Event
	// queue are messages that are not acknowledged, of which the first ones are sent.
	queue []outgoing
	sent  int

	// reconnects is how often the connection had been opened again when the session began.
	reconnects  uint64
	currentAsOf time.Time
}

var (
	errReconnected = errors.New("the connection was lost")
	errLost        = errors.New("the server no longer has what it acknowledged, or has something of another agent")
	errHeld        = errors.New("another agent publishes as this node")
)

// untilReconnected returns a context that ends when the connection is made again: what was under way
// then has no answer, and the server may have lost something. The caller calls stop.
func untilReconnected(ctx context.Context, conn *nats.Conn) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	connected := conn.StatusChanged(nats.CONNECTED)
	go func() {
		for range connected { // until stop closes it
			cancel(errReconnected)
		}
	}()
	return ctx, func() {
		conn.RemoveStatusListener(connected)
		cancel(nil)
	}
}

// publishOnce publishes until an error occurs, or the connection is made again after a loss.
func (p *Publisher) publishOnce(ctx context.Context) error {
	connected, stop := untilReconnected(ctx, p.o.Conn)
	defer stop()
	p.reconnects, p.currentAsOf, p.sent = p.o.Conn.Stats().Reconnects, time.Time{}, 0
	err := p.resume(connected)
	if err == nil {
		o := pleg.SubscribeOptions{Name: "fleet", Statuses: true}
		if o.Replay = p.gap != nil; !o.Replay {
			o.After = p.at
		}
		err = exporter.Session(connected, p.o.Source, o, p.run)
		if ctx.Err() != nil || errors.Is(err, exporter.ErrSourceEnded) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = p.js.Publish(ctx, leaseSubject(p.key), nil) // the node counts as silent at once
		}
	}
	if p.gap != nil || isRefused(err) {
		p.fence = 0
	}
	return cmp.Or(context.Cause(connected), err)
}

// resume makes the server continue where the last session ended, or begin.
func (p *Publisher) resume(ctx context.Context) error {
	if p.fence == 0 {
		return p.begin(ctx)
	}
	last, err := p.lastSequence(ctx, allOf(p.o.Cluster, p.o.Node)...)
	if err == nil && last < p.last {
		p.fence, err = 0, errLost
	}
	return err
}

// run publishes the events until an error occurs or the channel is closed.
func (p *Publisher) run(ctx context.Context, events <-chan pleg.Event) error {
	beat := time.NewTicker(beatPeriod)
	defer beat.Stop()
	err := p.flush(ctx)
	for err == nil {
		incoming, window := events, p.window()
		if len(p.queue) >= window {
			incoming = nil
		}
		if p.sent == 0 || len(p.queue)-p.sent >= window/8 { // many at once cost less
			if err := p.transmit(ctx); err != nil {
				return err
			}
		}
		ok, failed := p.answer()
		select {
		case ev, open := <-incoming:
			if !open {
				return errors.Join(ctx.Err(), p.flush(ctx), exporter.ErrSourceEnded)
			}
			err = p.accept(ctx, ev)
		case ack := <-ok:
			p.acknowledged(ack)
		case err = <-failed:
			err = p.failed(err)
		case <-beat.C:
			err = p.beat(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// accept makes the message about an event, adds it to the present state, or acts on a mark.
func (p *Publisher) accept(ctx context.Context, ev pleg.Event) error {
	if fit(&ev) {
		p.cut(ctx, &ev, "a name or an id is too long to publish")
	}
	switch {
	case ev.Type == pleg.Bookmark:
		p.currentAsOf = ev.ObservedAt
	case ev.Type == pleg.Gap:
		if err := p.flush(ctx); err != nil {
			return err
		}
		p.beginReplay(ev)
	case ev.Type == pleg.Synced && p.gap != nil:
		return p.publishReplay(ctx, ev)
	case ev.Type == pleg.Synced:
	case p.gap != nil:
		p.record(&ev).apply(&ev, inner(&ev))
	default:
		isNew, err := exporter.IsNew(&ev, p.at)
		if err != nil {
			p.fence = 0
		}
		if !isNew {
			return err
		}
		r, fields := p.record(&ev), inner(&ev)
		if r.apply(&ev, fields); r.gone() {
			delete(p.pods, ev.PodUID)
		}
		p.at = pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}
		return p.enqueue(ctx, ofEvent, podSubject(p.o.Cluster, p.o.Node, ev.PodUID), &ev, fields, r)
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
