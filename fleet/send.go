package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// outbox contains the messages that are not acknowledged. One batch, one message or two rows are in
// flight at a time.
type outbox struct {
	// queue contains the messages that are not acknowledged. The first ones may be sent already.
	queue []outgoing
	sent  int
	// parts are the batch, or the rows, in flight. late fires when the answer to the first one has not come in time.
	parts []part
	late  *time.Timer
	// id names the batch in flight, and begins the ids of the messages in the rows. inRows counts these.
	id     string
	inRows int
	// alone is true if the server refused the last batch or row: the next message, sent alone,
	// shows why.
	alone bool
	// row is true if rows are in flight. crowded is the number of times that no row is sent because other nodes
	// publish.
	row     bool
	crowded int
}

// part are messages that were sent together, and the answer to the last one.
type part struct {
	size   int
	answer jetstream.PubAckFuture
}

type outgoing struct {
	kind       kind
	observedAt time.Time
	subject    string
	body       []byte
	record     *record
}

const (
	// maxBatch is the number of messages that nats-server takes as one batch.
	maxBatch = 1000
	// leastBatch is the number of messages for which a batch is worth its cost on a single server, which writes each
	// batch to the disk twice. Several servers keep it in memory, and a batch costs them as much as a message.
	leastBatch = 16
	// leastRow is the number of messages for which a second row is sent behind one that is in flight: the server need
	// not wait.
	leastRow = 128
	// crowdedFor is the number of times that no row is sent after one was refused.
	crowdedFor = 32
)

// The headers of a batch. Package jetstream contains none of them yet.
const (
	batchID       = "Nats-Batch-Id"
	batchSequence = "Nats-Batch-Sequence"
	batchCommit   = "Nats-Batch-Commit"
)

// size returns how many messages of the queue are sent together, and whether as a batch or as a row. A Gap begins a batch, with
// the states that belong to it. A row costs a single server half as much as a batch. Each of its messages names the
// one before, which must be the last of the stream. If another node publishes meanwhile, the server refuses the rest.
func (p *Publisher) size() (n int, batch bool) {
	waiting := p.queue[p.sent:]
	n = min(len(waiting), maxBatch)
	if i := slices.IndexFunc(waiting[1:n], func(o outgoing) bool { return o.kind == ofGap }); i >= 0 {
		n = i + 1
	}
	crowded := p.crowded > 0
	p.crowded = max(0, p.crowded-1)
	switch {
	case waiting[0].kind == ofGap:
		return n, true
	case p.alone:
		return 1, false
	case p.replicated(), crowded && n >= leastBatch:
		return n, n > 1
	case crowded:
		return 1, false
	}
	return n, false
}

func (p *Publisher) replicated() bool { return p.stream.CachedInfo().Config.Replicas > 1 }

// followable reports whether a row is in flight and another row may follow it.
func (p *Publisher) followable() bool {
	return p.row && len(p.parts) == 1 && len(p.queue)-p.sent >= leastRow && p.queue[p.sent].kind != ofGap
}

// send sends the next messages of the queue. The server stores a batch as a whole or not at all, and a row up to some message.
func (p *Publisher) send() error {
	n, batch := p.size()
	end := p.sent + n
	if p.sent == 0 {
		p.id, p.inRows = strconv.FormatUint(rand.Uint64(), 36), 0
	}
	p.row = end > 1 && !batch
	for i := p.sent; i < end; i++ {
		o := p.queue[i]
		m := &nats.Msg{Subject: o.subject, Data: o.body, Header: nats.Header{"Content-Type": {contentType}}}
		if i == 0 {
			m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(p.last, 10)}
			m.Header[jetstream.ExpectedLastSubjSeqSubjHeader] = []string{p.all}
		} else if p.row { // the server compares ids without a look into its store
			m.Header[jetstream.ExpectedLastMsgIDHeader] = []string{p.messageID()}
		}
		switch {
		case p.row:
			p.inRows++
			m.Header[jetstream.MsgIDHeader] = []string{p.messageID()}
		case batch:
			m.Header[batchID], m.Header[batchSequence] = []string{p.id}, []string{strconv.Itoa(i + 1)}
		}
		if i < end-1 {
			if err := p.o.Conn.PublishMsg(m); err != nil {
				return p.failed(err)
			}
			continue
		}
		if batch {
			m.Header[batchCommit] = []string{"1"}
		}
		answer, err := p.js.PublishMsgAsync(m)
		if err != nil {
			return p.failed(err)
		}
		p.parts = append(p.parts, part{n, answer})
	}
	p.sent = end
	if p.late == nil {
		p.late = time.NewTimer(0)
	}
	p.late.Reset(p.timeout())
	return nil
}

// messageID returns the id of the last message of the rows in flight.
func (p *Publisher) messageID() string { return p.id + "." + strconv.Itoa(p.inRows) }

// acknowledged notes that the server has stored the first n messages of the queue, the last one with this sequence
// number.
func (p *Publisher) acknowledged(n int, sequence uint64) {
	now := time.Now()
	for i, o := range p.queue[:n] {
		o.record.stored, o.record.sequence = now, sequence-uint64(n-1-i)
		o.record.count++
		if o.kind == ofEvent {
			p.metrics.published.Inc()
			p.metrics.lag.Observe(now.Sub(o.observedAt).Seconds())
		}
	}
	p.queue, p.last, p.alone = slices.Delete(p.queue, 0, n), sequence, false
	p.loop.Acknowledged()
}

func (p *Publisher) failed(err error) error { return fmt.Errorf("publish: %w", explain(p.o.Conn, err)) }

// works notes that publishing works.
func (p *Publisher) works(ctx context.Context) {
	p.unanswered = 0
	p.fault.Store(nil)
	p.loop.Works(ctx)
}

// fails notes why publishing does not work, and since when.
func (p *Publisher) fails(err error) {
	f, before := &fault{time.Now(), err.Error()}, p.fault.Load()
	if before != nil {
		f.Since = before.Since
	}
	if before == nil || *before != *f { // another fault is told at once
		p.fault.Store(f)
	}
	switch code := refusal(err); {
	case code == tooLarge, code == incompleteBatch && p.queue[0].kind == ofGap:
		p.pods = nil // the next messages obey the present limits
	default:
		p.alone = code == incompleteBatch || isFull(code)
	}
}

// enqueue makes a message about a pod, or about the node if the record is that of its own messages.
func (p *Publisher) enqueue(ctx context.Context, k kind, subject string, ev *pleg.Event, r *record) {
	const headers = 1024
	m := newMessage(p.source, k, ev)
	var body []byte
	if r == &p.own {
		body = encode(m)
	} else {
		limit := int(p.o.Conn.MaxPayload())
		if most := int(p.stream.CachedInfo().Config.MaxMsgSize); most > 0 {
			limit = min(limit, most)
		}
		var cut string
		if body, cut = r.encode(m, limit-headers); cut != "" {
			p.cut(ctx, ev, cut)
		}
	}
	p.queue = append(p.queue, outgoing{k, ev.ObservedAt, subject, body, r})
}

// enqueueReplay makes the messages of a replay: a Gap, the states of all pods, and the end.
func (p *Publisher) enqueueReplay(ctx context.Context, synced pleg.Event) {
	gap, begin := p.gap, len(p.queue)
	p.at, p.gap = pleg.Position{Epoch: synced.Epoch, Seq: synced.Seq}, nil
	p.enqueue(ctx, ofGap, p.node, gap, &p.own)
	if gap.Reason == NodeNew && !p.replicated() { // no reader knows an older state of the node: the states need not come together
		p.queue[begin].kind = ofState
	}
	for subject, r := range p.pods {
		p.enqueueState(ctx, subject, r)
		p.keep(subject, r)
	}
	p.enqueue(ctx, ofSynced, p.node, &synced, &p.own)
}

// enqueueState makes the message with the state of a pod.
func (p *Publisher) enqueueState(ctx context.Context, subject string, r *record) {
	ev := pleg.Event{PodUID: r.uid, PodName: r.name, PodNamespace: r.namespace, Epoch: p.at.Epoch, Seq: p.at.Seq, ObservedAt: time.Now()}
	p.enqueue(ctx, ofState, subject, &ev, r)
}

// refresh publishes each state again whose last message is older than half of MaxAge.
func (p *Publisher) refresh(ctx context.Context) {
	age := p.stream.CachedInfo().Config.MaxAge
	old := func(r *record) bool { return age > 0 && time.Since(r.stored) > age/2 }
	if old(&p.own) {
		ev := pleg.Event{ObservedAt: time.Now()}
		p.enqueue(ctx, ofAgent, p.node, &ev, &p.own)
	}
	most := 1 + int(4*time.Duration(len(p.pods))*beatPeriod/max(age, 1)) // they may all be of one time
	for subject, r := range p.pods {
		if most > 0 && old(r) {
			most--
			p.enqueueState(ctx, subject, r)
		}
	}
}
