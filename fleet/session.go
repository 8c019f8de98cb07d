package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pleg-pipeline/pleg-pipeline/internal/exporter"
	"github.com/pleg-pipeline/pleg-pipeline/pleg"
)

// session is what the loop of a publisher knows. A session begins with what the server has of the
// node and ends with the first error.
//
// After a restart of the server a whole fleet comes back at once. What an agent knew before is then
// still true, except for what was not acknowledged. So it asks for that alone: to read the
// states of all its pods takes the server a request for each. Otherwise the agent opens the stream
// and the buckets again, and reads everything.
type session struct {
	*server // nil unless it is opened

	// known is true if what follows may still be true of the server: its parts, and what it has of
	// the node.
	known bool
	// owned is true once this publisher has published as its node.
	owned bool
	// lease is the revision of this agent's value in AgentBucket, renewed when it was written, and
	// verdict the one in it.
	lease   uint64
	renewed time.Time
	verdict *Verdict
	// last is the sequence number of the node's last message in the stream, 0 for none; the
	// server refuses the next one if it is not.
	last uint64
	// acked is the position of the last event that the server acknowledged.
	acked pleg.Position
	pods  map[pleg.PodUID]*podState
	// revisions has the revision of each key of the node and its pods in StateBucket. The server
	// refuses a state if the revision is another.
	revisions map[string]revision
	// node is the value of the node's key, and refreshed when it and the states of all pods
	// were last written together.
	node      nodeState
	refreshed time.Time
	// refusals is how often the server refused something since it accepted something.
	refusals int
	// replay makes the next session begin with the present state.
	replay bool

	// reconnects counts those of the connection before the session began.
	reconnects  uint64
	currentAsOf time.Time
	// gap is not nil while the present state is being replayed: it is to be published
	// before the next event.
	gap *pleg.Event
	// published is when the last message was acknowledged.
	published time.Time
	// batch has the events to be published next. After an error nobody knows whether the server has
	// their states of before or of after them.
	batch []pleg.Event
	// sent is the message that is not acknowledged.
	sent []byte
}

// maxRefusals is how often in a row the server may refuse what a publisher sends. After that,
// the next session reads everything again. A server with a backlog may answer a question with what
// it had before the last write, and then refuse the next one.
const maxRefusals = 3

// publishOnce publishes until an error occurs, or the connection is made again after a loss.
func (p *Publisher) publishOnce(ctx context.Context) error {
	connected, stop := untilReconnected(ctx, p.o.Conn)
	defer stop()
	p.reconnects, p.currentAsOf = p.o.Conn.Stats().Reconnects, time.Time{}
	err := p.takeOver(connected)
	if err == nil {
		var after *pleg.Position // nil for the present state
		if p.gap == nil {
			acked := p.acked
			after = &acked
		}
		follow := func(ctx context.Context, events chan<- pleg.Event) error {
			return p.o.Source.Follow(ctx, after, events)
		}
		err = exporter.Session(connected, follow, p.run)
		if ctx.Err() != nil || errors.Is(err, exporter.ErrSourceEnded) {
			p.release(context.WithoutCancel(ctx))
		}
	}
	if isRefused(err) {
		p.refusals++
	}
	p.known = p.last > 0 && p.gap == nil && !p.replay && p.refusals < maxRefusals && !errors.Is(err, errHeld)
	return cmp.Or(context.Cause(connected), err)
}

// accepted notes that the server has accepted something.
func (p *Publisher) accepted(ctx context.Context) {
	p.refusals = 0
	p.loop.Works(ctx)
}

// takeOver makes this publisher the one of its node, and finds out what the node has published. The
// lease comes first, so that an agent that is being replaced publishes nothing after this one
// has read.
func (p *Publisher) takeOver(ctx context.Context) (err error) {
	if !p.known {
		if p.server, err = openNode(ctx, p.js, p.o.Node, &p.o.Limits); err != nil {
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

// readServer reads the node's last message and its states. The session begins with the present
// state, unless the states have the epoch of the last message.
func (p *Publisher) readServer(ctx context.Context) error {
	last, published, err := p.lastPublished(ctx)
	if err != nil {
		return err
	}
	p.last, p.refusals = 0, 0
	p.pods, p.revisions, p.node = make(map[pleg.PodUID]*podState), make(map[string]revision), nodeState{}
	p.refreshed, p.batch, p.sent, p.gap = time.Time{}, nil, nil, nil
	if err := p.readOwn(ctx, []string{p.key, p.key + ".>"}); err != nil {
		return err
	}
	if last != nil {
		p.last = last.Sequence
	}
	if published.Epoch == "" {
		published = p.acked // the stream no longer has it
	}
	if published.Epoch != "" && published.Epoch == p.node.Epoch && !p.replay {
		p.acked = published
	} else {
		p.beginReplay(pleg.Event{Type: pleg.Gap, Reason: pleg.OtherEpoch})
	}
	p.replay = false
	return nil
}

// beginReplay makes what follows the present state, after a Gap.
func (p *Publisher) beginReplay(gap pleg.Event) {
	p.gap, p.pods = &gap, make(map[pleg.PodUID]*podState)
}

// readOwn notes what the server has of the node and its pods. A state of another epoch was written by
// an agent that was being replaced. If a state cannot be read, the next session begins with the
// present state.
func (p *Publisher) readOwn(ctx context.Context, keys []string) error {
	return p.readNode(ctx, keys, func(e entry) error {
		switch {
		case e.value == nil:
			p.revisions[e.key] = revision{e.revision, time.Now()}
			return nil
		case e.key == p.key:
			_ = json.Unmarshal(e.value, &p.node) // what cannot be read has no epoch
		default:
			pod := &podState{}
			if err := json.Unmarshal(e.value, pod); err != nil {
				p.log.WarnContext(ctx, "cannot read a state", "key", e.key, "err", err)
				p.replay = true
			} else if pod.Epoch == p.node.Epoch {
				p.pods[pod.UID] = pod
			}
		}
		p.revisions[e.key] = revision{sequence: e.revision}
		return nil
	})
}

// lastPublished returns the node's last message in the stream, nil if there is none, and the
// position of the last event in it, zero if it is not of an agent.
func (p *Publisher) lastPublished(ctx context.Context) (*storedMessage, pleg.Position, error) {
	last, err := p.message(ctx, p.nameOf(EventStream), wanted{Last: p.ownSubject()})
	if err != nil {
		return nil, pleg.Position{}, fmt.Errorf("read last message: %w", explain(p.o.Conn, err))
	}
	if last == nil {
		return nil, pleg.Position{}, nil
	}
	m, err := decode(last.Data)
	if err != nil {
		// A message that is not ours: what follows it begins with a Gap.
		p.log.WarnContext(ctx, "cannot read the last message", "subject", p.ownSubject(), "err", err)
		return last, pleg.Position{}, nil
	}
	return last, pleg.Position{Epoch: m.epoch, Seq: m.last}, nil
}

var errLost = errors.New("the server has lost what it acknowledged, or another agent has published")

// resume brings up to date what is known of the server. It is an error if the last message of the
// node is neither the last one that was acknowledged nor the one that was under way then, or if the
// server lost what it had acknowledged. The next session then reads everything.
func (p *Publisher) resume(ctx context.Context) error {
	last, published, err := p.lastPublished(ctx)
	if err != nil {
		return err
	}
	lost, err := p.isStateLost(ctx)
	if err != nil {
		return err
	}
	switch {
	case lost:
		p.replay = true
		return errLost
	case last != nil && last.Sequence == p.last:
	case last != nil && p.sent != nil && bytes.Equal(last.Data, p.sent):
		p.last, p.acked = last.Sequence, published
	default:
		p.last = 0
		return errLost
	}
	var unsettled []string
	for _, ev := range p.batch {
		key := podKey(p.o.Cluster, p.o.Node, ev.PodNamespace, ev.PodUID)
		delete(p.pods, ev.PodUID)
		delete(p.revisions, key)
		unsettled = append(unsettled, key)
	}
	slices.Sort(unsettled)
	if err := p.readOwn(ctx, slices.Compact(unsettled)); err != nil {
		return err
	}
	if p.replay {
		return errLost
	}
	p.batch, p.sent = nil, nil
	return nil
}

// isStateLost reports whether the server no longer has states that it acknowledged to this
// publisher: by default it may lose the last two minutes in a power failure. It loses the last writes,
// so it has all if it has the newest, a value or a removal.
func (p *Publisher) isStateLost(ctx context.Context) (bool, error) {
	p.forgetMarks()
	var newest string
	for key, r := range p.revisions {
		if r.sequence > p.revisions[newest].sequence {
			newest = key
		}
	}
	if newest == "" {
		return false, nil
	}
	m, err := p.message(ctx, p.stateStream(), wanted{Last: subjectOf(p.nameOf(StateBucket), newest)})
	if err != nil {
		return false, explain(p.o.Conn, err)
	}
	return m == nil || m.Sequence < p.revisions[newest].sequence, nil
}
