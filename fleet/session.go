package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pleg-pipeline/pleg-pipeline/internal/backoff"
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
	// batch are events of which no message has been made, queue are messages that are not
	// acknowledged, the first of them sent, and made counts the messages.
	batch []pleg.Event
	queue []outgoing
	sent  int
	made  int

	// reconnects is how often the connection had been opened again when the session began.
	reconnects  uint64
	currentAsOf time.Time
	// published is when the last messages were acknowledged.
	published time.Time
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
		var after *pleg.Position // nil for the present state
		if p.gap == nil {
			after = new(p.at)
		}
		follow := func(ctx context.Context, events chan<- pleg.Event) error {
			return p.o.Source.Follow(ctx, after, events)
		}
		err = exporter.Session(connected, follow, p.run)
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
	last, err := p.lastSequence(ctx, allOf(p.o.Cluster)(p.o.Node))
	if err == nil && last < p.last {
		p.fence, err = 0, errLost
	}
	return err
}

// run publishes the events until an error occurs or the channel is closed.
func (p *Publisher) run(ctx context.Context, events <-chan pleg.Event) (err error) {
	beat := time.NewTicker(beatPeriod)
	defer beat.Stop()
	if err := p.await(ctx, 0); err != nil {
		return err
	}
	if p.gap == nil { // nothing may have to be published for long
		p.loop.Works(ctx)
	}
	for err == nil {
		if len(p.queue) > 0 && len(events) == 0 {
			err = p.await(ctx, 0)
			continue
		}
		select {
		case ev, ok := <-events:
			if !ok {
				return errors.Join(ctx.Err(), exporter.ErrSourceEnded)
			}
			err = p.publishAll(ctx, ev, events)
		case <-beat.C:
			err = p.beat(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return err
}

// messagePause is the time from some messages to the next, unless many events wait: so the events
// of a pod that starts are sent together. An event is sent at once if the last message is older.
const messagePause = 20 * time.Millisecond

// publishAll publishes an event and the events that wait behind it, up to a bound.
func (p *Publisher) publishAll(ctx context.Context, ev pleg.Event, events <-chan pleg.Event) error {
	if pause := messagePause - time.Since(p.published); pause > 0 && len(events) < exporter.Buffer/2 {
		if err := backoff.Wait(ctx, pause); err != nil {
			return err
		}
	}
	defer func() { p.published = time.Now() }()
	p.batch = p.batch[:0]
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
		if err != nil {
			p.fence = 0
		}
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
		if r := p.pods[ev.PodUID]; r != nil && len(r.events) == 0 {
			delete(p.pods, ev.PodUID)
		}
	}
	for r := range fresh {
		r.status = nil
	}
	p.batch = p.batch[:0]
	return p.await(ctx, exporter.Buffer)
}

func (p *Publisher) readStatus(ctx context.Context, uid pleg.PodUID, r *record) error {
	status, err := p.o.Source.Status(ctx, uid)
	if err != nil && !errors.As(err, new(*pleg.InspectionError)) {
		return fmt.Errorf("read pod status: %w", err)
	}
	r.setStatus(status, err)
	return nil
}
