package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// session is the state of a publisher's loop. Each session ends with an error, and the next one sends
// the messages again that were not acknowledged. Each publication names the node's newest message. So
// the server refuses a message that it has stored already, and any message after one of another agent or
// after a loss.
type session struct {
	*store // nil until the stream is open
	lease
	patience
	outbox

	// own is the record of the messages about the node. pods are the records of pods with messages on the
	// server, by subject. If pods is nil, the next session asks the server.
	own  record
	pods map[string]*record
	// gone are the records of pods that are gone, while the server has messages of them.
	gone map[string]*record
	// last is the sequence number of the node's newest message.
	last uint64
	// at is the position of the last event of which a message has been made.
	at pleg.Position
	// gap is the Gap before the present state, until that is complete; otherwise nil.
	gap *pleg.Event
	// currentAsOf is the time of the newest mark of the source, and publishedAsOf that of the newest one before which all is published.
	currentAsOf, publishedAsOf time.Time
	// beats fires when it is time to beat. verified is the time at which the server's messages were counted;
	// newestOfAll was the number of the stream's newest message then.
	beats       *time.Ticker
	verified    time.Time
	newestOfAll uint64
}

// publishOnce publishes until an error occurs, or the connection is made again after a loss.
func (p *Publisher) publishOnce(ctx context.Context) error {
	connected, stop := untilReconnected(ctx, p.o.Conn)
	defer stop()
	p.currentAsOf = time.Time{}
	err := p.resume(connected)
	if err == nil {
		o := pleg.SubscribeOptions{Name: "fleet", Statuses: true, Replay: p.gap != nil}
		if !o.Replay {
			o.After = p.at
		}
		err = exporter.Session(connected, p.o.Source, o, p.run)
	}
	err = cmp.Or(context.Cause(connected), err)
	p.note(p.o.Conn, err)
	p.fails(err)
	return err
}

// resume finds out which messages in flight the server has stored. If its messages are not those of the last
// session, resume calls begin.
func (p *Publisher) resume(ctx context.Context) error {
	if p.pods == nil {
		return p.begin(ctx)
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	if p.gap != nil {
		p.forgetStates()
	}
	if len(p.queue) == 0 && p.gap == nil {
		p.works(ctx)
	}
	return nil
}

// settle finds out which messages in flight the server has stored.
func (p *Publisher) settle(ctx context.Context) error {
	m, err := p.newest(ctx, p.all)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return p.lost()
	}
	if err != nil {
		return err
	}
	// It may be the last message of an earlier attempt with fewer messages.
	i := slices.IndexFunc(p.queue, func(o outgoing) bool { return bytes.Equal(o.body, m.Data) })
	switch {
	case m.Sequence > p.last && i >= 0:
		p.acknowledged(i+1, m.Sequence)
	case m.Sequence != p.last:
		return p.lost()
	}
	p.sent, p.parts = 0, nil
	return nil
}

// lost makes the next session ask for the server's messages.
func (p *Publisher) lost() error {
	p.pods = nil
	return errors.New("the server has lost messages that it acknowledged, or has messages of another agent")
}

// begin makes this publisher the publisher of its node, and finds the pods with messages on the
// server.
func (p *Publisher) begin(ctx context.Context) (err error) {
	first := p.store == nil
	if p.store, err = openStream(ctx, p.js, &p.patience, p.o.Cluster, "", &p.o.Limits); err != nil {
		return err
	}
	p.buffer = agentBuffer
	if n := p.stream.CachedInfo().Config.Replicas; n < 3 && first {
		p.log.WarnContext(ctx, "fewer than 3 servers keep the events: a power failure may lose some", "replicas", n)
	}
	if err := p.renew(ctx, p.examine(ctx)); err != nil {
		return err
	}
	newest, err := p.newest(ctx, p.all)
	if err != nil {
		return err
	}
	p.queue, p.sent, p.parts, p.at, p.last, p.own = nil, 0, nil, pleg.Position{}, newest.Sequence, record{}
	p.gap = &pleg.Event{Reason: pleg.OtherEpoch, ObservedAt: time.Now()}
	pods, isNew := make(map[string]*record), true
	if p.last > 0 {
		_, err = p.snapshot(ctx, []string{p.all}, func(m *jetstream.RawStreamMsg) {
			of, err := decode(m.Data)
			switch {
			case of.kind == ofGone:
				return
			case m.Subject == p.node || err == nil && of.Pod != nil && of.Pod.Gone:
				delete(pods, m.Subject)
			case err != nil:
				p.log.WarnContext(ctx, "cannot read the last message of a pod", "subject", m.Subject, "err", err)
				fallthrough
			default:
				pods[m.Subject] = newRecord(of.PodUID, of.PodName, of.PodNamespace)
			}
			isNew = false
		})
	}
	if isNew {
		p.gap.Reason = NodeNew
	}
	if err == nil {
		p.pods, p.gone = pods, make(map[string]*record)
	}
	return err
}

// run publishes the events until an error occurs or the channel is closed.
func (p *Publisher) run(ctx context.Context, events <-chan pleg.Event) (err error) {
	p.beats = time.NewTicker(beatPeriod)
	defer p.beats.Stop()
	for err == nil {
		err = p.step(ctx, events)
	}
	if errors.Is(err, exporter.ErrSourceEnded) {
		for err := error(nil); err == nil && len(p.queue) > 0; {
			err = p.step(ctx, nil)
		}
	}
	return err
}

// step sends waiting messages unless some are in flight, and then acts on the next input: an event, an
// answer, or the time to beat.
func (p *Publisher) step(ctx context.Context, events <-chan pleg.Event) error {
	if p.sent == 0 && len(p.queue) > 0 || p.followable() {
		if err := p.send(); err != nil {
			return err
		}
	}
	var (
		acknowledged <-chan *jetstream.PubAck
		failed       <-chan error
		late         <-chan time.Time
	)
	if p.sent > 0 {
		acknowledged, failed, late = p.parts[0].answer.Ok(), p.parts[0].answer.Err(), p.late.C
	}
	if len(p.queue)-p.sent >= maxBatch {
		events = nil
	}
	select {
	case ev, open := <-events:
		return p.gather(ctx, ev, open, events)
	case ack := <-acknowledged:
		n := p.parts[0].size
		p.acknowledged(n, ack.Sequence)
		p.sent, p.parts = p.sent-n, p.parts[1:]
		p.late.Reset(p.timeout())
		p.works(ctx)
		return nil
	case err := <-failed:
		if p.row && refusal(err) == wrongLastMessage {
			p.crowded = crowdedFor
			return p.settle(ctx)
		}
		return p.failed(err)
	case <-late:
		return p.failed(nats.ErrTimeout)
	case <-p.beats.C:
		return p.beat(ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// gatherTime is how long the publisher waits for more events after one: those of one commit come together.
const gatherTime = time.Millisecond

func (p *Publisher) gather(ctx context.Context, ev pleg.Event, open bool, events <-chan pleg.Event) error {
	for enough := time.After(gatherTime); open; {
		if err := p.accept(ctx, ev); err != nil || len(p.queue)-p.sent >= maxBatch {
			return err
		}
		select {
		case ev, open = <-events:
		case <-enough:
			return nil
		}
	}
	return errors.Join(ctx.Err(), exporter.ErrSourceEnded)
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
		p.gap = &ev
		p.forgetStates()
		return nil
	case ev.Type == pleg.Synced:
		if p.gap != nil {
			p.enqueueReplay(ctx, ev)
		}
		return nil
	case p.gap == nil:
		isNew, err := exporter.IsNew(&ev, p.at)
		if err != nil {
			p.pods = nil
		}
		if !isNew {
			return err
		}
	}
	subject := podSubject(p.o.Cluster, p.o.Node, ev.PodUID)
	r := p.pods[subject]
	if r == nil {
		r = new(record)
		p.pods[subject] = r
	}
	r.uid, r.name, r.namespace = ev.PodUID, ev.PodName, ev.PodNamespace
	r.apply(&ev)
	if p.gap != nil {
		return nil
	}
	p.at = pleg.Position{Epoch: ev.Epoch, Seq: ev.Seq}
	p.enqueue(ctx, ofEvent, subject, &ev, r)
	p.keep(subject, r)
	return nil
}

// keep notes that the server still has messages of a pod that is gone.
func (p *Publisher) keep(subject string, r *record) {
	if r.Gone {
		delete(p.pods, subject)
		r.podTimed, r.status, r.encoded = podTimed{}, nil, nil
		p.gone[subject] = r
	}
}

// forgetStates empties the records before the present state comes: pods that are not in that state
// are gone.
func (p *Publisher) forgetStates() {
	for subject, r := range p.pods {
		p.pods[subject] = newRecord(r.uid, r.name, r.namespace)
	}
}
