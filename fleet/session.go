package fleet

import (
	"bytes"
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
// refused something or lost it, and in a new process, it begins with a Gap, a message about the node: each
// later one names its sequence number, so that the server refuses whatever another agent, or an
// earlier session, still has under way. Then comes the present state.
type session struct {
	*store        // nil until the stream is open
	agents *store // AgentBucket
	patience
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
	at pleg.Position
	// pods are those that the server may have, by their subjects.
	pods map[string]*record
	// replaying is true from a Gap until the present state has been published.
	replaying bool
	outbox

	// reconnects is how often the connection had been opened again when the session began.
	reconnects  uint64
	currentAsOf time.Time
}

var (
	errReconnected = errors.New("the connection was lost")
	errLost        = errors.New("the server no longer has what it acknowledged, or has something of another agent")
	errHeld        = errors.New("another agent publishes as this node")
	errLease       = errors.New("renew lease")
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
	p.reconnects, p.currentAsOf = p.o.Conn.Stats().Reconnects, time.Time{}
	if err := p.openInbox(p.o.Conn); err != nil {
		return err
	}
	err := p.resume(connected)
	if err == nil {
		o := pleg.SubscribeOptions{Name: "fleet", Statuses: true}
		if o.Replay = p.replaying; !o.Replay {
			o.After = p.at
		}
		err = exporter.Session(connected, p.o.Source, o, p.run)
		if ctx.Err() != nil || errors.Is(err, exporter.ErrSourceEnded) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = p.js.Publish(ctx, p.lease, nil) // the node counts as silent at once
		}
	}
	if p.replaying || isRefused(err) && !p.writesNode() {
		p.fence = 0
	}
	err = cmp.Or(context.Cause(connected), err)
	p.note(p.o.Conn, err)
	return err
}

// resume makes the server continue where the last session ended, or begin.
func (p *Publisher) resume(ctx context.Context) error {
	if p.fence == 0 {
		return p.begin(ctx)
	}
	if p.writesNode() {
		m, err := p.message(ctx, wanted{Last: p.node})
		if err != nil {
			return err
		}
		if bytes.Equal(m.Data, p.queue[0].body) {
			p.acknowledged(m.Sequence)
		} else if m.Sequence != p.fence {
			p.fence = 0
			return errLost
		}
	}
	last, err := p.lastSequence(ctx, allOf(p.o.Cluster, p.o.Node)...)
	if err == nil && last < p.last {
		p.fence, err = 0, errLost
	}
	return err
}

// writesNode reports whether the message about the node waits for its answer. Nothing else is under way then. If the
// server refuses it, it may have it already: it names its predecessor.
func (p *Publisher) writesNode() bool { return len(p.queue) > 0 && p.queue[0].subject == p.node }

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
			if err := p.transmit(); err != nil {
				return err
			}
		}
		err = p.wait(ctx, incoming, beat.C)
	}
	return err
}

// wait acts on what comes next: an event, the time to beat, or an answer.
func (p *Publisher) wait(ctx context.Context, events <-chan pleg.Event, beat <-chan time.Time) error {
	select {
	case ev, open := <-events:
		if !open {
			return errors.Join(ctx.Err(), p.flush(ctx), exporter.ErrSourceEnded)
		}
		return p.accept(ctx, ev)
	case m := <-p.answers:
		return p.answered(m)
	case <-p.late.C:
		if p.sent > 0 {
			return p.failed(nats.ErrTimeout)
		}
		return nil
	case <-beat:
		return p.beat(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// accept makes the message about an event, adds it to the present state, or acts on a mark.
func (p *Publisher) accept(ctx context.Context, ev pleg.Event) error {
	if fit(&ev) {
		p.cut(ctx, &ev, "a name or an id is too long to publish")
	}
	switch {
	case ev.Type == pleg.Bookmark:
		p.currentAsOf = ev.ObservedAt
		return nil
	case ev.Type == pleg.Gap:
		return p.beginReplay(ctx, ev)
	case ev.Type == pleg.Synced && p.replaying:
		return p.publishReplay(ctx, ev)
	case ev.Type == pleg.Synced:
		return nil
	case !p.replaying:
		isNew, err := exporter.IsNew(&ev, p.at)
		if err != nil {
			p.fence = 0
		}
		if !isNew {
			return err
		}
	}
	subject := podSubject(p.o.Cluster, p.o.Node, ev.PodUID)
	r, fields := p.pods[subject], inner(&ev)
	if r == nil {
		r = new(record)
		p.pods[subject] = r
	}
	r.uid, r.name, r.namespace = ev.PodUID, ev.PodName, ev.PodNamespace
	r.apply(&ev, fields)
	if p.replaying {
		return nil
	}
	if r.gone() {
		delete(p.pods, subject)
	}
	p.at = pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	p.enqueue(ctx, ofEvent, subject, &ev, fields, r)
	return nil
}
