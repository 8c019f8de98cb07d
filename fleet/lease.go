package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// takeLease writes this agent into AgentBucket. The first time it replaces another agent,
// so that an agent which restarts does not wait for the lease of its dead self. Later the
// other one is the newer of the two, and this one waits until its lease has expired.
func (s *session) takeLease(ctx context.Context) error {
	// The leader is asked: a replica may still have the lease of before, or none.
	m, err := s.message(ctx, "KV_"+s.nameOf(AgentBucket), wanted{Last: subjectOf(s.nameOf(AgentBucket), s.key)})
	if err != nil {
		return fmt.Errorf("read lease: %w", explain(s.p.o.Conn, err))
	}
	s.lease = 0
	if m != nil {
		var holder agentState
		_ = json.Unmarshal(m.Data, &holder) // what cannot be read is replaced
		if m.isValue() && holder.Agent != s.p.agent && s.p.owned {
			return fmt.Errorf("%w: %s", errHeld, holder.Agent)
		}
		s.lease = m.Sequence
	}
	s.verdict = s.p.verdict(ctx)
	return s.renewLease(ctx)
}

func (s *session) renewLease(ctx context.Context) error {
	value, err := json.Marshal(agentState{Agent: s.p.agent, Epoch: s.p.acked.Epoch, Seq: s.p.acked.Seq, CurrentAsOf: s.currentAsOf, Verdict: s.verdict})
	if err != nil {
		return fmt.Errorf("encode lease: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.o.PublishTimeout)
	defer cancel()
	ack, err := s.js.Publish(ctx, subjectOf(s.nameOf(AgentBucket), s.key), value, jetstream.WithExpectLastSequencePerSubject(s.lease))
	if err != nil {
		return fmt.Errorf("renew lease: %w", explain(s.p.o.Conn, err))
	}
	s.lease, s.renewed = ack.Sequence, time.Now()
	s.p.loop.Acknowledged()
	return nil
}

// release removes the lease, so that the node counts as silent at once.
func (s *session) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	agents, err := s.js.KeyValue(ctx, s.nameOf(AgentBucket))
	if err == nil {
		err = agents.Purge(ctx, s.key, jetstream.LastRevision(s.lease))
	}
	if err != nil {
		s.p.log.DebugContext(ctx, "cannot remove the lease", "err", err)
	}
}
