package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// outbox is what is not acknowledged. The server answers in the order in which it got the messages, so
// that one channel has all answers: package jetstream would need a timer, a map and two channels for
// each message.
type outbox struct {
	// queue are messages that are not acknowledged, of which the first ones are sent.
	queue []outgoing
	sent  int
	// answers come to the subjects inbox.1, inbox.2 and so on. number is that of the newest.
	answers chan *nats.Msg
	inbox   *nats.Subscription
	number  uint64
	// late fires when the next answer has not come in time.
	late *time.Timer
}

type outgoing struct {
	kind        kind
	observedAt  time.Time
	subject, id string
	body        object
	record      *record // nil in a message about the node
	number      uint64  // of its answer
}

// openInbox prepares for a session, which sends the queue again. All sessions have one inbox: at the
// end of each subscription to a wildcard the server searches all answers that anybody waits for.
func (b *outbox) openInbox(conn *nats.Conn) error {
	b.sent, b.late = 0, time.NewTimer(requestTimeout)
	if b.inbox != nil {
		for len(b.answers) > 0 {
			<-b.answers
		}
		return nil
	}
	var err error
	b.answers = make(chan *nats.Msg, 2*mostSent) // of this session and the last one
	if b.inbox, err = conn.ChanSubscribe(conn.NewInbox()+".*", b.answers); err != nil {
		return fmt.Errorf("subscribe to answers: %w", explain(conn, err))
	}
	return nil
}

func (b *outbox) closeInbox() {
	if b.inbox != nil {
		_ = b.inbox.Unsubscribe() // it fails if the connection is closed
	}
}

// bodies are the bodies of acknowledged messages, to be used again.
var bodies sync.Pool

// enqueue makes a message about a pod, or about the node if there is no record. The fields are those of inner.
func (p *Publisher) enqueue(ctx context.Context, k kind, subject string, ev *pleg.Event, fields object, r *record) {
	const headers = 1024
	to, _ := bodies.Get().(object)
	id, body := begin(to, p.source, k, ev, fields)
	cut := ""
	if r == nil {
		body = append(body.text("agent", p.agent), "}}"...)
	} else if body, cut = r.end(body, int(p.o.Conn.MaxPayload())-headers); cut != "" {
		p.cut(ctx, ev, cut)
	}
	p.queue = append(p.queue, outgoing{kind: k, observedAt: ev.ObservedAt, subject: subject, id: p.key + "/" + id, body: body, record: r})
}

// writeNode publishes the message about the node that the next messages name, as the successor of
// the message that they named so far.
func (p *Publisher) writeNode(ctx context.Context, k kind, ev pleg.Event) error {
	if err := p.flush(ctx); err != nil {
		return err
	}
	p.enqueue(ctx, k, p.node, &ev, inner(&ev), nil)
	return p.flush(ctx)
}

// mostSent is the largest number of messages that may be under way.
const mostSent = 256

// window is the number of messages that may be under way. If one server refuses a message for the fence,
// it refuses the messages behind it too. Several servers refuse a message that names the same fence as a
// message that they have not stored yet.
func (p *Publisher) window() int {
	if p.stream.CachedInfo().Config.Replicas > 1 {
		return 1
	}
	return mostSent
}

// transmit sends what of the queue may be under way.
func (p *Publisher) transmit() error {
	// The newest message must not hide what the server has lost meanwhile.
	if p.o.Conn.Stats().Reconnects != p.reconnects {
		return errReconnected
	}
	header := nats.Header{
		"Content-Type":                          {contentType},
		jetstream.ExpectedLastSubjSeqHeader:     {strconv.FormatUint(p.fence, 10)},
		jetstream.ExpectedLastSubjSeqSubjHeader: {p.node},
		jetstream.MsgIDHeader:                   {""},
	}
	for ; p.sent < min(p.window(), len(p.queue)); p.sent++ {
		o := &p.queue[p.sent]
		if p.sent == 0 {
			p.late.Reset(p.timeout())
		}
		p.number++
		o.number = p.number
		reply := strings.TrimSuffix(p.inbox.Subject, "*") + strconv.FormatUint(p.number, 10)
		header[jetstream.MsgIDHeader][0] = o.id
		if err := p.o.Conn.PublishMsg(&nats.Msg{Subject: o.subject, Reply: reply, Data: o.body, Header: header}); err != nil {
			return p.failed(err)
		}
	}
	return nil
}

// flush returns once all messages are acknowledged.
func (p *Publisher) flush(ctx context.Context) error {
	for {
		if err := p.transmit(); err != nil {
			return err
		}
		if len(p.queue) == 0 {
			break
		}
		if err := p.wait(ctx, nil, nil); err != nil {
			return err
		}
	}
	if !p.replaying {
		p.works(ctx)
	}
	return nil
}

// works notes that publishing works.
func (p *Publisher) works(ctx context.Context) {
	p.unanswered = 0
	p.loop.Works(ctx)
}

func (p *Publisher) failed(err error) error { return fmt.Errorf("publish: %w", explain(p.o.Conn, err)) }

// answered acts on the answer to the first message of the queue. Answers of the last session may still come.
func (p *Publisher) answered(m *nats.Msg) error {
	number, _ := strconv.ParseUint(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
	if p.sent == 0 || number < p.queue[0].number {
		return nil
	}
	var ack struct {
		Error    *jetstream.APIError `json:"error"`
		Sequence uint64              `json:"seq"`
	}
	err := json.Unmarshal(m.Data, &ack)
	switch {
	case len(m.Data) == 0:
		err = nats.ErrNoResponders
	case err == nil && ack.Error != nil:
		err = ack.Error
	case err == nil && number != p.queue[0].number:
		err = errors.New("an answer was lost")
	}
	if err != nil {
		return p.failed(err)
	}
	p.sent--
	p.late.Reset(p.timeout())
	p.acknowledged(ack.Sequence)
	return nil
}

// acknowledged notes that the server has the first message of the queue.
func (p *Publisher) acknowledged(sequence uint64) {
	now, o := time.Now(), p.queue[0]
	p.queue, p.last = p.queue[1:], max(p.last, sequence)
	bodies.Put(o.body[:0]) //nolint:staticcheck // a slice is small beside what it saves
	switch {
	case o.record == nil:
		p.fence, p.fenced = sequence, now
	case o.kind == ofEvent:
		p.metrics.published.Inc()
		p.metrics.lag.Observe(now.Sub(o.observedAt).Seconds())
		fallthrough
	default:
		o.record.stored = now
	}
	p.loop.Acknowledged()
}
