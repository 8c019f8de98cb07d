package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

var errHeld = errors.New("another agent publishes as this node")

// takeLease writes this agent into AgentBucket. The first time it replaces another agent,
// so that an agent which restarts does not wait for the lease of its dead self. Later the
// other one is the newer of the two, and this one waits until its lease has expired.
func (p *Publisher) takeLease(ctx context.Context) error {
	// The leader is asked: a replica may still have the lease of before, or none.
	m, err := p.message(ctx, "KV_"+p.nameOf(AgentBucket), wanted{Last: subjectOf(p.nameOf(AgentBucket), p.key)})
	if err != nil {
		return fmt.Errorf("read lease: %w", explain(p.o.Conn, err))
	}
	p.lease = 0
	if m != nil {
		var holder agentState
		_ = json.Unmarshal(m.Data, &holder) // what cannot be read is replaced
		if m.isValue() && holder.Agent != p.agent && p.owned {
			return fmt.Errorf("%w: %s", errHeld, holder.Agent)
		}
		p.lease = m.Sequence
	}
	p.verdict = p.examine(ctx)
	return p.renewLease(ctx)
}

func (p *Publisher) renewLease(ctx context.Context) error {
	value, err := json.Marshal(agentState{Agent: p.agent, Epoch: p.acked.Epoch, Seq: p.acked.Seq, CurrentAsOf: p.currentAsOf, Verdict: p.verdict})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.o.PublishTimeout)
	defer cancel()
	ack, err := p.js.Publish(ctx, subjectOf(p.nameOf(AgentBucket), p.key), value, jetstream.WithExpectLastSequencePerSubject(p.lease))
	if err != nil {
		return fmt.Errorf("renew lease: %w", explain(p.o.Conn, err))
	}
	p.lease, p.renewed = ack.Sequence, time.Now()
	p.loop.Acknowledged()
	return nil
}

// release removes the lease, so that the node counts as silent at once.
func (p *Publisher) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	agents, err := p.js.KeyValue(ctx, p.nameOf(AgentBucket))
	if err == nil {
		err = agents.Purge(ctx, p.key, jetstream.LastRevision(p.lease))
	}
	if err != nil {
		p.log.DebugContext(ctx, "cannot remove the lease", "err", err)
	}
}
